"""The model card of an exported drafter: what the hub needs to know on top, the drafter's own card below."""

from pathlib import Path

from models.catalog import BUNDLED

TITLES = {"eagle": "EAGLE", "eagle3": "EAGLE-3", "dflash": "DFlash"}
HEAD = """---
base_model: {target}
license: apache-2.0
pipeline_tag: text-generation
tags:
- speculative-decoding
- {kind}
---
"""
BARE = """
# {title} drafter for {target}

Converted to another layout by DraftScope's `python -m models.export`, without a bit of its weights changed. It came
without a card: who made it, on what data and under which licence is not known, so find out before you pass it on.
"""


def model_card(kind: str, target: str, folder: Path) -> str:
    """Card of the drafter in `folder`; only ours get a licence from us."""
    head, own = HEAD.format(target=target, kind=kind), folder / "README.md"
    if BUNDLED not in folder.resolve().parents:
        head = head.replace("license: apache-2.0\n", "")
    if not own.exists():
        return head + BARE.format(title=TITLES[kind], target=target)
    text = own.read_text(encoding="utf-8")
    return text if text.startswith("---\n") else head + "\n" + text
