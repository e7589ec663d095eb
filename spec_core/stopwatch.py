"""Time on a device that works on its own: events in its queue, read once the step is over."""

import torch

from spec_core.contract import Stopwatch


class EventWatch(Stopwatch):
    """CUDA's own marks. They lie in the queue between the kernels, so neither host nor device waits for them."""

    def __init__(self, device: torch.device):
        self.device = device

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def ms(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end)

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)


def stopwatch(device: torch.device) -> Stopwatch:
    return EventWatch(device) if device.type == "cuda" else Stopwatch()
