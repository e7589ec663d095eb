"""Whether a time can be trusted: how much of the processor other processes had while it was taken."""

import os
import time
from pathlib import Path

BUSY = 0.4  # cores' worth of other processes' work beside a run that makes its times doubtful


def foreign_seconds() -> float:
    """Processor time that other processes have had so far on the cores we may use; 0 where the system does not say."""
    try:
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        ticks = sum(int(n) for line in lines if line[0] in cores for n in (*line[1:4], *line[6:9]))
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
    except (OSError, AttributeError, ValueError):
        return 0.0


class Watch:
    """Looks at the neighbours from when it is made."""

    def __init__(self) -> None:
        self.begun, self.foreign = time.perf_counter(), foreign_seconds()

    def contended(self) -> bool:
        """Others have had more than their share so far."""
        return foreign_seconds() - self.foreign > BUSY * (time.perf_counter() - self.begun)

    @property
    def ms(self) -> float:
        """How long it has been."""
        return 1000 * (time.perf_counter() - self.begun)
