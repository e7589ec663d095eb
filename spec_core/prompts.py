"""Prompt files: one JSON object a line, the text in `text` or as the first of `turns`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class PromptFileError(ValueError):
    """A prompt file that cannot be used; the message names the line."""


@dataclass(frozen=True)
class Question:
    """key: what the file calls it (`key` or `id`), else its line number. set: the collection it comes from, or ""."""

    key: str
    text: str
    set: str = ""

    @property
    def name(self) -> str:
        return f"{self.set} {self.key}".strip()


def question(record: Any, number: int, file: str) -> Question:
    """One line of the file, parsed; one that names no set belongs to the set of its file."""
    if not isinstance(record, dict):
        raise PromptFileError(f"prompt line {number} is no JSON object")
    turns = record.get("turns") or [record.get("text")]
    text = turns[0] if isinstance(turns, list) else None
    if not isinstance(text, str) or not text.strip():
        raise PromptFileError(f"prompt line {number} is empty: give it a `text`, or `turns` with a first one")
    key = record.get("key", record.get("id", number))
    return Question(str(key), text, str(record.get("set", file)))


def load(path: Path) -> list[Question]:
    """All prompts of a file, in order; PromptFileError says which line is wrong."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(question(json.loads(line), number, path.stem))
        except json.JSONDecodeError as error:
            raise PromptFileError(f"{path.name}, line {number} is not JSON: {error}") from error
    if not found:
        raise PromptFileError(f"{path.name} holds no prompts")
    return found


def sample(questions: Sequence[Question], limit: int) -> list[Question]:
    """At most `limit` of them, an equal number from the start of each set; file order is kept."""
    sets = list(dict.fromkeys(q.set for q in questions))
    if limit >= len(questions):
        return list(questions)
    ranks = {name: [q for q in questions if q.set == name] for name in sets}
    rounds = [ranks[name][i] for i in range(len(questions)) for name in sets if i < len(ranks[name])]
    chosen = set(map(id, rounds[:limit]))
    return [q for q in questions if id(q) in chosen]
