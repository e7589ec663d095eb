"""How much memory a model takes, and how much there is."""

from pathlib import Path

import torch
from torch import nn

from models.decoder import Decoder, DecoderConfig

ROOM = 0.85  # share of the free memory that may be used


def free_bytes(device: torch.device) -> float:
    """Memory that can still be had; endless where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration, ValueError):
        return float("inf")


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
