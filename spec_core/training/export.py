"""Writes a trained drafter in its published layout: config.json, model.safetensors in bf16, and a model card."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from models.decoder import Decoder
from models.load import Model
from spec_core.training.loop import Trainer
from spec_core.training.report import Report

CARD = """# {title} for {target}

A drafter for speculative decoding, trained by this project for its lessons. It holds no copy of the target's embedding
or LM head and is of no use without the target.

| | |
|---|---|
| method | {method} |
| parameters | {parameters:,} |
| trained on | {documents:,} dialogues ({tokens:,} tokens) that the target wrote itself |
| seen in training | {seen:,} tokens in {steps:,} steps of {size} dialogues, {epochs:.1f} epochs |
| time and hardware | {minutes:.0f} minutes on {device}, {threads} threads, fp32 |
| command | `{command}` |
| seed, learning rate | {seed}, {rate:g} (AdamW, cosine to zero) |
| started from | {start} |
| held-out dialogues | {held_out} (by hash of the question) |
| accuracy of guess 1, 2, 3 …, given the ones before | {accuracy} |
| tokens per step of a chain that long (τ, own token included) | {tau:.2f} |
| licence | Apache-2.0, as the target |

Data: the target sampled most of the questions too (T 0.9); about 70 % of the answers are greedy, the others are drawn
at T 0.7 with top-p 0.95. `python -m spec_core.training.corpus` writes such data, `… .features` reads it.

Limits: trained briefly, in English, on answers of at most 256 tokens, one turn, and the default system turn. Elsewhere,
such as in Chinese or in long chats, it guesses worse; the text stays the target's own all the same.
{note}"""


@dataclass(frozen=True)
class Drafter:
    """What is published: names and tensors as other programs expect them."""

    title: str
    method: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    note: str = ""


def shared_config(decoder: Decoder, architecture: str) -> dict[str, Any]:
    """The fields every published layout has, from the target's own sizes."""
    c = decoder.config
    theta = c.rope.inv_freq[1] ** (-c.head_dim / 2)  # inv_freq[1] = theta ^ (-2 / head_dim)
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": c.hidden,
        "intermediate_size": c.ffn,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": c.eps,
        "rope_theta": float(round(theta)),
        "rope_scaling": None,
        "max_position_embeddings": c.max_positions,
        "vocab_size": c.vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }


def earlier_config(folder: Path, ours: dict[str, Any]) -> dict[str, Any]:
    """What the folder that training went on from says of its head, which is still of that shape; `ours` if it is of
    another layout."""
    theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if theirs.get("architectures") != ours["architectures"]:
        return ours
    theirs.pop("torch_dtype", None)
    return theirs | {"dtype": ours["dtype"]}


def half(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in bf16; tables of ids as they are."""
    return {k: (t.to(torch.bfloat16) if t.is_floating_point() else t).contiguous() for k, t in tensors.items()}


def replace(path: Path, content: bytes | str) -> None:
    """Readers see the old file or the new one, never half of one."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(part, path)


def card(drafter: Drafter, trainer: Trainer, model: Model, report: Report) -> str:
    plan, state, store = trainer.plan, trainer.state, trainer.store
    known = store.numbers(held_out=False)
    return CARD.format(
        title=drafter.title,
        target=model.id,
        method=drafter.method,
        parameters=sum(t.numel() for t in drafter.tensors.values() if t.is_floating_point()),
        documents=len(known),
        tokens=int(store.documents["length"][known].sum()),
        seen=state.tokens,
        steps=state.step,
        size=plan.size,
        epochs=state.tokens / max(1, int(store.documents["length"][known].sum())),
        minutes=state.seconds / 60,
        device=model.device_name,
        threads=torch.get_num_threads(),
        command=plan.command,
        seed=plan.seed,
        rate=plan.rate,
        start="weights of an earlier run" if plan.start else "the target's last layers, norm and head rows",
        held_out=len(store.numbers(held_out=True)),
        accuracy=" ".join(f"{a:.2f}" for a in report.accuracy),
        tau=report.tau,
        note=drafter.note,
    )


def publish(drafter: Drafter, trainer: Trainer, model: Model) -> Report:
    """Report on held-out dialogues, then write the folder."""
    report = trainer.report()
    print(report.line())
    folder = trainer.plan.out
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "model.safetensors.part"
    save_file(half(drafter.tensors), part, metadata={"format": "pt"})
    part.chmod(0o644)  # the library writes for the owner alone
    os.replace(part, folder / "model.safetensors")
    config = drafter.config if trainer.plan.start is None else earlier_config(trainer.plan.start, drafter.config)
    replace(folder / "config.json", json.dumps(config, indent=2) + "\n")
    replace(folder / "README.md", card(drafter, trainer, model, report))
    return report
