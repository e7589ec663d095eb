"""What a reader may ask of this server. DRAFTSCOPE_HOSTED=1 sets the rules of a public one; local ones only guard."""

import os
from dataclasses import dataclass, replace

SWITCH = "DRAFTSCOPE_HOSTED"


@dataclass(frozen=True)
class Rules:
    """characters: of a prompt as pasted; prompt: its tokens, 0 for what the target reads. tokens: of an answer.

    waiting: runs in line, own: of one reader; often: runs a reader may ask for in ten minutes. seconds: of a run.
    trace_mb, lab_mb: uploaded files; unpacked_mb: the same after decompression.
    """

    hosted: bool = False
    characters: int = 40_000
    prompt: int = 0
    tokens: int = 256
    waiting: int = 24
    own: int = 24
    often: int = 600
    seconds: float = 900.0
    trace_mb: int = 20
    lab_mb: int = 5
    unpacked_mb: int = 200


LOCAL = Rules()
PUBLIC = Rules(
    hosted=True,
    characters=8_000,
    prompt=1_024,
    tokens=128,
    waiting=96,
    own=8,
    often=60,
    seconds=60.0,
    trace_mb=4,
    lab_mb=1,
    unpacked_mb=40,
)


def rules() -> Rules:
    """Those of this server. DRAFTSCOPE_QUEUE: how many runs may wait."""
    found = PUBLIC if os.environ.get(SWITCH) == "1" else LOCAL
    waiting = os.environ.get("DRAFTSCOPE_QUEUE", "")
    return replace(found, waiting=int(waiting)) if waiting.isdecimal() else found
