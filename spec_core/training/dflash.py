"""Trains a DFlash drafter: many blocks of a dialogue at once, each seeing what comes before its anchor, and itself."""

from pathlib import Path

import torch
from torch import Tensor, nn

from models.decoder import Decoder
from models.heads import DFlashConfig, DFlashHead
from models.layers import AttentionShape
from spec_core.training import loop
from spec_core.training.data import Batch, Store
from spec_core.training.export import Drafter, publish, shared_config
from spec_core.training.features import dflash_layers
from spec_core.training.report import Report, summarise
from spec_core.training.vocabulary import FREQUENT, Vocabulary, soft_loss
from spec_core.training.warm import copy_, copy_mlp, earlier, feature_scale

LAYERS = 5
BLOCK = 16  # the published block; smaller ones are trained along
MASK = 16  # <empty_output>: a special token that the target never writes
SIZES = (2, 4, 8, 16)  # a block of 2 is one guess: rows spent on it teach the first, on which all others stand
ODDS = (0.25, 0.35, 0.25, 0.15)
SLOTS = 128  # rows per dialogue and step, whatever the block size
SHALLOW = 0.3  # weight of the loss of a smaller depth, drawn per batch: each depth is to be a drafter of its own …
DEEP = (
    0.5  # … after this share of the run, which goes to the full depth alone: the two pull against each other at first
)
GUESSES = 7  # places in the draft that the held-out report follows
REPORTED = 24  # anchors per held-out dialogue


def decay(slot: Tensor, block: int) -> Tensor:
    """Weight of slot 1, 2, …: a later guess only counts where all before it are right (gamma 4 at 8, 7 at 16)."""
    return torch.exp(-(slot - 1) / (1 + block * 0.375))


def draw_anchors(batch: Batch, count: int, ahead: int, generator: torch.Generator | None = None) -> Tensor:
    """[B, count] rows whose token is an answer's, as are the `ahead` tokens behind it."""
    answer = batch.choice >= 0
    valid = torch.zeros_like(answer)
    valid[:, 1:-ahead] = answer[:, : -ahead - 1] & answer[:, ahead:-1]
    valid[:, 1] |= ~valid.any(1)  # too short an answer: a harmless anchor, since no label behind it counts
    return torch.multinomial(valid.float(), count, replacement=True, generator=generator)


def block_mask(anchors: Tensor, block: int, context: int) -> Tensor:
    """[B, N · block, context + N · block]: the context strictly before the own anchor, and the own block both ways."""
    count = anchors.shape[1]
    before = torch.arange(context) < anchors.repeat_interleave(block, 1)[..., None]
    own = torch.block_diag(*[torch.ones(block, block)] * count).bool()
    return torch.cat([before, own.expand(len(anchors), -1, -1)], dim=-1)


class DFlashTraining(nn.Module):
    """The drafter, and the scale that its fc is trained behind."""

    scale: Tensor

    def __init__(self, head: DFlashHead, scale: Tensor):
        super().__init__()
        self.head = head
        self.register_buffer("scale", scale)

    def context(self, features: Tensor) -> Tensor:
        return self.head.context(features / self.scale)


def fresh_head(decoder: Decoder, layers: int, block: int, mask_token: int) -> DFlashHead:
    c = decoder.config
    shape = AttentionShape(c.hidden, c.hidden, c.heads, c.kv_heads, c.head_dim, c.eps, qk_norm=True)
    taken = tuple(i + 1 for i in dflash_layers(c.layers))
    full = (0,) * layers
    return DFlashHead(
        DFlashConfig(c.hidden, c.ffn, layers, shape, c.rope, block, mask_token, taken, full, (False,) * layers)
    )


def warm_start(head: DFlashHead, decoder: Decoder, scale: Tensor) -> None:
    """Layers, norms and the context's projection start as the target's last layers reading its last stored state."""
    sources = decoder.model.layers[-head.config.layers :]
    width = head.config.hidden
    weight = torch.zeros_like(head.fc.weight)
    weight[:, -width:] = torch.diag(scale[-width:] / scale[-width:].median())
    copy_(head.fc, weight)
    copy_(head.hidden_norm, sources[-1].input_layernorm.weight)  # type: ignore[arg-type, union-attr]
    copy_(head.norm, decoder.model.norm.weight)
    for layer, source in zip(head.layers, sources, strict=True):
        copy_(layer.input_layernorm, source.input_layernorm.weight)  # type: ignore[arg-type, union-attr]
        copy_(layer.post_attention_layernorm, source.post_attention_layernorm.weight)  # type: ignore[arg-type, union-attr]
        copy_mlp(layer.mlp, source.mlp)  # type: ignore[arg-type]
        copy_attention(layer, source)


def copy_attention(layer: nn.Module, source: nn.Module) -> None:
    """The target has no q and k norm: start them at the size its queries and keys have."""
    to, attention = layer.self_attn, source.self_attn
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        copy_(getattr(to, name), getattr(attention, name).weight)  # type: ignore[arg-type]
    for norm, name in ((to.q_norm, "q_proj"), (to.k_norm, "k_proj")):  # type: ignore[union-attr]
        weight = getattr(attention, name).weight * source.input_layernorm.weight  # type: ignore[arg-type, union-attr, operator]
        copy_(norm, torch.full_like(norm.weight, float(weight.pow(2).sum(1).mean().sqrt())))  # type: ignore[arg-type, union-attr]


class Task:
    """Soft cross-entropy on every masked slot, for the whole network and for a random smaller depth."""

    def __init__(self, decoder: Decoder, head: DFlashHead, scale: Tensor, frequent: Tensor):
        self.network = DFlashTraining(head, scale)
        self.layers = head.config.feature_layers
        self.embed = decoder.model.embed_tokens
        self.vocabulary = Vocabulary(decoder.lm_head.weight)
        self.frequent = frequent

    def outputs(self, batch: Batch, anchors: Tensor, block: int) -> list[Tensor]:
        """Per layer [B, N · block, H]: row n · block + j is slot j of block n, at position anchor + j."""
        head, (size, count) = self.network.head, anchors.shape
        ids = torch.full((size, count, block), head.config.mask_token)
        ids[:, :, 0] = batch.ids.gather(1, anchors)
        context = self.network.context(batch.features)
        places = (anchors[..., None] + torch.arange(block)).flatten(1)
        positions = torch.cat([batch.positions, places], dim=1)
        mask = block_mask(anchors, block, context.shape[1])
        return head(self.embed(ids.flatten(1)), context, positions, None, [mask] * head.config.layers)

    def judged(self, batch: Batch, anchors: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of every slot that counts: dialogue, row in the output, the row that tells its token, and slot number.

        Slot j guesses the token at its own place anchor + j; the target's opinion of that token is one row earlier.
        """
        slots = torch.arange(block).expand(*anchors.shape, -1)
        told = anchors[..., None] + slots - 1
        inside = (slots > 0) & (told < batch.ids.shape[1])
        choice = batch.choice.gather(1, told.flatten(1).clamp(max=batch.ids.shape[1] - 1)).view_as(told)
        counts = (inside & (choice >= 0)).flatten(1)
        where, slot = counts.nonzero(as_tuple=True)
        return where, slot, told.flatten(1)[where, slot], slots.flatten(1)[where, slot]

    def loss(self, batch: Batch, progress: float) -> Tensor:
        block = SIZES[int(torch.multinomial(torch.tensor(ODDS), 1))]
        anchors = draw_anchors(batch, SLOTS // block, 1)
        where, slot, told, number = self.judged(batch, anchors, block)
        outputs = self.outputs(batch, anchors, block)
        rows = self.vocabulary.draw(torch.cat([self.frequent, batch.choice[where, told]]))
        weights, feature = decay(number, block), batch.last[where, told]
        loss = soft_loss(self.network.head.norm(outputs[-1][where, slot]), feature, rows, weights)
        if progress < DEEP:
            return loss
        some = torch.rand(len(where)) < 0.5  # half of the slots are enough for the side task
        out = outputs[int(torch.randint(max(1, len(outputs) - 1), (1,)))][where[some], slot[some]]
        return loss + SHALLOW * soft_loss(self.network.head.norm(out), feature[some], rows, weights[some])

    def hits(self, batch: Batch) -> Tensor:
        return self.hits_by_depth(batch)[-1]

    def hits_by_depth(self, batch: Batch) -> list[Tensor]:
        """Per depth [GUESSES, drafts]: whether slot j of a full block names the token at its place."""
        block, steady = self.network.head.config.block_size, torch.Generator(batch.ids.device).manual_seed(0)
        anchors = draw_anchors(batch, REPORTED, GUESSES, steady)
        wanted = batch.ids.gather(1, (anchors[..., None] + torch.arange(1, GUESSES + 1)).flatten(1))
        found = []
        for out in self.outputs(batch, anchors, block):
            slots = out.unflatten(1, (-1, block))[:, :, 1 : GUESSES + 1].flatten(1, 2)
            guess = self.vocabulary.logits(self.network.head.norm(slots)).argmax(-1)
            found.append((guess == wanted).view(-1, GUESSES).T)
        return found


def build(decoder: Decoder, store: Store, start: Path | None, mask_token: int) -> Task:
    if (store.ids == mask_token).any():
        raise SystemExit(f"the corpus contains token {mask_token}, which is to be the mask: choose one it never uses")
    scale = feature_scale(store, tuple(i + 1 for i in dflash_layers(decoder.config.layers)))
    if start is None:
        head = fresh_head(decoder, LAYERS, BLOCK, mask_token)
        with torch.no_grad():
            warm_start(head, decoder, scale)
    else:
        head = earlier(start, decoder)
        assert isinstance(head, DFlashHead)
        copy_(head.fc, head.fc.weight * scale)
    frequent = torch.tensor(store.frequent(min(FREQUENT, decoder.config.vocab)))
    return Task(decoder, head, scale, frequent)


def depth_report(task: Task, trainer: loop.Trainer) -> list[Report]:
    """One report per number of layers."""
    with torch.inference_mode():
        hits = [task.hits_by_depth(batch) for batch in trainer.held_out()]
    return [summarise(depth) for depth in zip(*hits, strict=True)]


def drafter(task: Task, decoder: Decoder, note: str = "") -> Drafter:
    """The published layout; the scale goes back into fc."""
    head, c = task.network.head, decoder.config
    tensors = dict(head.state_dict())
    tensors["fc.weight"] = head.fc.weight.detach() / task.network.scale
    config = shared_config(decoder, "DFlashDraftModel") | {
        "model_type": "qwen3",
        "num_hidden_layers": head.config.layers,
        "layer_types": ["full_attention"] * head.config.layers,
        "attention_bias": False,
        "block_size": head.config.block_size,
        "num_target_layers": c.layers,
        "dflash_config": {
            "mask_token_id": head.config.mask_token,
            "target_layer_ids": [i - 1 for i in head.config.feature_layers],
        },
    }
    return Drafter("DFlash drafter", "DFlash (arXiv 2602.06036)", config, tensors, note)


def main() -> None:
    plan = loop.arguments("dflash", __doc__ or "", size=2, rate=1e-3, minutes=40)
    model, store = loop.open_target(plan)
    task = build(model.decoder, store, plan.start, MASK)
    trainer = loop.Trainer(task, store, plan)
    trainer.train()
    taus = ", ".join(f"{r.tau:.2f}" for r in depth_report(task, trainer))
    note = f"\nThe first 1, 2, … layers alone are drafters too; held-out τ of a chain of {GUESSES}: {taus}.\n"
    publish(drafter(task, model.decoder, note), trainer, model)


if __name__ == "__main__":
    main()
