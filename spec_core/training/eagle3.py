"""Trains an EAGLE-3 head as it will be used: each unrolled step reads the step before it (training-time test)."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.decoder import Decoder
from models.heads import Eagle3Config, Eagle3Head, Eagle3Layer
from models.layers import Attention, AttentionShape
from spec_core.training import loop
from spec_core.training.data import Batch, Store
from spec_core.training.export import Drafter, publish, shared_config
from spec_core.training.features import eagle3_layers
from spec_core.training.unroll import chain_hits, judged_rows, unroll
from spec_core.training.vocabulary import FREQUENT, Vocabulary, soft_loss
from spec_core.training.warm import copy_, copy_mlp, earlier, feature_scale, last_layer, low_rank, ridge

STEPS = 3  # unrolled steps in the second part of the run
SINGLE = 0.35  # share of a fresh run with one step only: three cost three times as much, but later guesses need them
GUESSES = 5  # places in the draft that the held-out report follows
FITTED = 64  # dialogues that the linear start is fitted on
NARROW = 0.03  # the head's states have unit size, the target's last ones about thirty
SELF = 8.0  # attention score with which a row finds itself at the start


class Eagle3Training(nn.Module):
    """The head, and the scale that its fc is trained behind."""

    scale: Tensor

    def __init__(self, head: Eagle3Head, scale: Tensor):
        super().__init__()
        self.head = head
        self.register_buffer("scale", scale)

    def rows(self, features: Tensor) -> Tensor:
        return self.head.fuse(features / self.scale)


def fresh_head(decoder: Decoder, kept: list[int]) -> Eagle3Head:
    c = decoder.config
    shape = AttentionShape(2 * c.hidden, c.hidden, c.heads, c.kv_heads, c.head_dim, c.eps)
    layers = eagle3_layers(c.layers)
    head = Eagle3Head(Eagle3Config(c.hidden, c.hidden, c.ffn, shape, c.rope, c.vocab, len(kept), layers))
    ids = torch.tensor(kept)
    head.d2t.copy_(ids - torch.arange(len(kept)))
    head.t2d[ids] = True
    return head


def warm_start(head: Eagle3Head, decoder: Decoder, store: Store, scale: Tensor) -> None:
    """Norms and head rows are the target's; fc and the attention start as the best linear guess of what comes next.

    fc rebuilds the target's last state from the three features. Two of the three key/value heads look at their own
    row, which alone holds the newest token, and add what that token changes; the third starts as the target's own.
    """
    layer, block, norm = last_layer(decoder), head.midlayer, decoder.model.norm.weight
    copy_(block.hidden_norm, torch.ones_like(norm))
    copy_(block.input_layernorm, decoder.model.layers[0].input_layernorm.weight)  # type: ignore[arg-type]
    copy_(block.post_attention_layernorm, layer.post_attention_layernorm.weight)
    copy_(head.norm, norm)
    copy_(head.lm_head, decoder.lm_head.weight[head.t2d])
    copy_mlp(block.mlp, layer.mlp, NARROW)
    batch = store.batch(store.numbers(held_out=False)[:FITTED], head.config.feature_layers)
    rows = (batch.choice[:, 1:] >= 0).nonzero(as_tuple=True)
    state = batch.last / norm
    features = (batch.features / scale)[rows]
    copy_(head.fc, ridge(features, state[rows]))
    hidden = head.fuse(features)
    newest = decoder.model.embed_tokens(batch.ids[:, 1:][rows])
    look_at_self(
        block,
        torch.cat([block.input_layernorm(newest), block.hidden_norm(hidden)], dim=-1),
        state[:, 1:][rows] - hidden,
    )
    look_back(block.self_attn, layer.self_attn)


def look_at_self(block: Eagle3Layer, rows: Tensor, change: Tensor) -> None:
    """All heads but the last group: queries and keys share a random projection of the embedding, so a row finds itself;
    values and output make the best low-rank guess of `change` from the row."""
    attention, shape = block.self_attn, block.self_attn.shape
    groups, dim = shape.kv_heads - 1, shape.head_dim
    share = shape.heads // shape.kv_heads
    out, values = low_rank(ridge(rows, change), rows, groups * dim)
    half = shape.input // 2
    match = torch.randn(groups * dim, half) * (SELF * dim**0.5 / (dim * rows[:, :half].pow(2).sum(-1).mean())) ** 0.5
    keys = F.pad(match, (0, half))
    attention.k_proj.weight[: groups * dim] = keys
    attention.q_proj.weight[: groups * share * dim] = by_head(keys, groups).repeat_interleave(share, 0).flatten(0, 1)
    attention.v_proj.weight[: groups * dim] = values
    shared = by_head(out.T, groups).repeat_interleave(share, 0) / share
    attention.o_proj.weight[:, : groups * share * dim] = shared.flatten(0, 1).T


def by_head(weight: Tensor, heads: int) -> Tensor:
    return weight.unflatten(0, (heads, -1))


def look_back(attention: Attention, source: Attention) -> None:
    """The last group of heads reads the hidden half as the target's last layer does."""
    shape, half = attention.shape, attention.shape.input // 2
    for name in ("q_proj", "k_proj", "v_proj"):
        to, weight = getattr(attention, name).weight, getattr(source, name).weight
        first = to.shape[0] - to.shape[0] // shape.kv_heads
        to[first:, :half] = torch.randn(to.shape[0] - first, half) * 0.02
        to[first:, half:] = weight[first:]
    first = attention.o_proj.weight.shape[1] * (shape.kv_heads - 1) // shape.kv_heads
    attention.o_proj.weight[:, first:] = source.o_proj.weight[:, first:] * NARROW


class Task:
    """Soft cross-entropy within the draft vocabulary, the same for each unrolled step."""

    def __init__(self, decoder: Decoder, head: Eagle3Head, scale: Tensor, frequent: Tensor, single: float):
        self.single = single
        self.network = Eagle3Training(head, scale)
        self.layers = head.config.feature_layers
        self.embed = decoder.model.embed_tokens
        head.lm_head.requires_grad_(False)  # as good as the target's rows can be; half of the weights need no step
        self.vocabulary = Vocabulary(head.lm_head.weight)
        self.frequent = frequent

    def draft_ids(self, ids: Tensor) -> Tensor:
        """Target ids → their rows in the draft vocabulary."""
        return self.network.head.t2d.cumsum(0)[ids] - 1

    def outputs(self, batch: Batch, steps: int) -> list[Tensor]:
        return unroll(self.network.head, self.embed, batch, self.network.rows(batch.features), steps)

    def loss(self, batch: Batch, progress: float) -> Tensor:
        head = self.network.head
        within = (batch.choice >= 0) & head.t2d[batch.choice.clamp(min=0)]  # a choice outside has no honest target
        where, row = judged_rows(within, STEPS)
        needed = torch.cat([self.frequent[head.t2d[self.frequent]], batch.choice[where, row]])
        rows, feature = self.vocabulary.draw(self.draft_ids(needed)), batch.last[where, row]
        outputs = self.outputs(batch, 1 if progress < self.single else STEPS)
        losses = [soft_loss(head.norm(out[where, row - s - 1]), feature, rows) for s, out in enumerate(outputs)]
        return torch.stack(losses).mean()

    def hits(self, batch: Batch) -> Tensor:
        head = self.network.head
        return chain_hits(
            batch, self.outputs(batch, GUESSES), lambda out: head.to_target(head.logits(out, self.embed).argmax(-1))
        )


def build(decoder: Decoder, store: Store, start: Path | None, draft_vocab: int = 8192) -> Task:
    scale = feature_scale(store, eagle3_layers(decoder.config.layers))
    if start is None:
        head = fresh_head(decoder, store.frequent(min(draft_vocab, decoder.config.vocab)))
        with torch.no_grad():
            warm_start(head, decoder, store, scale)
    else:
        head = earlier(start, decoder)
        assert isinstance(head, Eagle3Head)
        copy_(head.fc, head.fc.weight * scale)
    frequent = store.frequent(min(FREQUENT, head.config.draft_vocab))
    return Task(decoder, head, scale, torch.tensor(frequent), SINGLE if start is None else 0.0)


def drafter(task: Task, decoder: Decoder) -> Drafter:
    """The published layout; the scale goes back into fc."""
    head = task.network.head
    tensors = dict(head.state_dict())
    tensors["fc.weight"] = head.fc.weight.detach() / task.network.scale
    config = shared_config(decoder, "LlamaForCausalLMEagle3") | {
        "draft_vocab_size": head.config.draft_vocab,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(head.config.feature_layers)},
    }
    return Drafter("EAGLE-3 head", "EAGLE-3 (arXiv 2503.01840)", config, tensors)


def main() -> None:
    plan = loop.arguments("eagle3", __doc__ or "", size=1, rate=1e-3, minutes=30)
    model, store = loop.open_target(plan)
    task = build(model.decoder, store, plan.start)
    trainer = loop.Trainer(task, store, plan)
    trainer.train()
    publish(drafter(task, model.decoder), trainer, model)


if __name__ == "__main__":
    main()
