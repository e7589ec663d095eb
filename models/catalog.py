"""Which target goes with which drafters: a frozen table. Sources are bundled folders or Hugging Face ids."""

from dataclasses import dataclass, field
from pathlib import Path

BUNDLED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Pair:
    """A target and, by kind of network (eagle, eagle3, dflash), where its drafter is."""

    key: str
    title: str
    source: str  # "embedded", or a Hugging Face id
    drafters: dict[str, str] = field(default_factory=dict)


PAIRS = (
    Pair(
        "smollm2-135m",
        "SmolLM2-135M-Instruct",
        "embedded",
        {
            "eagle": "bundled:smollm2-135m/eagle",
            "eagle3": "bundled:smollm2-135m/eagle3",
            "dflash": "bundled:smollm2-135m/dflash",
        },
    ),
    Pair(
        "qwen3-4b",
        "Qwen3-4B",
        "Qwen/Qwen3-4B",
        {"eagle3": "AngelSlim/Qwen3-4B_eagle3", "dflash": "z-lab/Qwen3-4B-DFlash-b16"},
    ),
    Pair(
        "qwen3-8b",
        "Qwen3-8B",
        "Qwen/Qwen3-8B",
        {"eagle3": "AngelSlim/Qwen3-8B_eagle3", "dflash": "z-lab/Qwen3-8B-DFlash-b16"},
    ),
    Pair(
        "llama3.1-8b",
        "Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        {
            "eagle": "yuhuili/EAGLE-LLaMA3.1-Instruct-8B",
            "eagle3": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "dflash": "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
        },
    ),
)


def find(key: str) -> Pair:
    """The table's pair of that key; any other name is a Hugging Face id or a folder without known drafters."""
    return next((pair for pair in PAIRS if pair.key == key), Pair(key, key, key))
