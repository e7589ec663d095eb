"""How much memory a model takes, and how much there is."""

from pathlib import Path

import torch
from torch import nn

from models.decoder import Decoder, DecoderConfig

ROOM = 0.85  # share of the free memory that may be used
CGROUP = Path("/sys/fs/cgroup")  # where a container finds its own limits
ENDLESS = float("inf")


def free_bytes(device: torch.device) -> float:
    """Memory that can still be had; endless where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # PyTorch gives it out again
        return torch.cuda.mem_get_info(device)[0] + kept
    return min(free_in_system(), free_in_container())


def free_in_system() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration, ValueError):
        return ENDLESS


def free_in_container() -> float:
    """What the container may still take. Files it has read count as taken there, and can be dropped at any time."""
    try:
        most, taken = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        kinds = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return most - taken + int(kinds.get("inactive_file", 0)) + int(kinds.get("active_file", 0))
    except (OSError, ValueError):  # "max", where there is no limit
        return ENDLESS


def numbers(modules: list[nn.Module]) -> int:
    """Weights of all modules, those they share counted once."""
    return sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())


def size(config: DecoderConfig) -> int:
    """Weights of a decoder of that config; nothing is allocated."""
    with torch.device("meta"):
        return numbers([Decoder(config)])


def copies(device: torch.device, dtype: torch.dtype) -> int:
    """How often weights lie in memory: on CPU in fp32 a packed copy stands beside them."""
    return 2 if device.type == "cpu" and dtype == torch.float32 else 1
