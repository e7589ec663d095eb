"""Trains an EAGLE head as published: regress the target's next feature, plus a little soft cross-entropy."""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.decoder import Decoder
from models.heads import EagleConfig, EagleHead
from models.layers import AttentionShape
from spec_core.training import loop
from spec_core.training.data import Batch, Store
from spec_core.training.export import Drafter, publish, shared_config
from spec_core.training.unroll import chain_hits, judged_rows, unroll
from spec_core.training.vocabulary import FREQUENT, Vocabulary, soft_loss
from spec_core.training.warm import copy_, copy_mlp, earlier, last_layer, ridge

STEPS = 3  # unrolled steps in the second part of the run: guesses behind the first read the head's own features
SINGLE = 0.5  # share of a fresh run with one step only, as published; a continued run has none
GUESSES = 5  # places in the draft that the held-out report follows
SAID = 0.5  # share of the rows that also meet the LM head, which costs more than the whole drafter
NOISE = 0.2  # width of the uniform noise on the features, so that the head bears its own slightly wrong ones
FITTED = 64  # dialogues that the linear start is fitted on
NARROW = 0.003  # the layer joins in gently: the target made it for states a hundred times larger


class EagleTraining(nn.Module):
    """The head, and how much larger features are than embeddings: fc is trained on embeddings of the features' size."""

    ratio: Tensor

    def __init__(self, head: EagleHead, ratio: Tensor):
        super().__init__()
        self.head = head
        self.register_buffer("ratio", ratio)


def fresh_head(decoder: Decoder) -> EagleHead:
    c = decoder.config
    shape = AttentionShape(c.hidden, c.hidden, c.heads, c.kv_heads, c.head_dim, c.eps)
    return EagleHead(EagleConfig(c.hidden, c.ffn, shape, c.rope, True, (c.layers,)))


def warm_start(head: EagleHead, decoder: Decoder, store: Store, ratio: Tensor) -> None:
    """fc is the best linear guess of the next feature; the target's last layer, turned down, adds to it from there."""
    block, layer = head.layers[0], last_layer(decoder)
    batch = store.batch(store.numbers(held_out=False)[:FITTED], ())
    where, row = judged_rows(batch.choice >= 0, 1)
    newest = decoder.model.embed_tokens(batch.ids[where, row]) * ratio
    pairs = torch.cat([newest, batch.last[where, row - 1], torch.ones(len(where), 1)], dim=-1)
    fitted = ridge(pairs, batch.last[where, row])
    copy_(head.fc, fitted[:, :-1])
    head.fc.bias.copy_(fitted[:, -1])
    for name in ("q_proj", "k_proj", "v_proj"):
        copy_(getattr(block.self_attn, name), getattr(layer.self_attn, name).weight * layer.input_layernorm.weight)
    copy_(block.self_attn.o_proj, layer.self_attn.o_proj.weight * NARROW)  # type: ignore[union-attr]
    copy_(block.post_attention_layernorm, layer.post_attention_layernorm.weight)  # type: ignore[arg-type]
    copy_mlp(block.mlp, layer.mlp, NARROW)  # type: ignore[arg-type]


class Task:
    """Smooth L1 to the target's own feature and cross-entropy to its own distribution, the same for each unrolled step.

    One step is EAGLE's own training (arXiv 2401.15077 §4.3); feeding the head its own features as in drafting is
    HASS's addition (arXiv 2408.15766).
    """

    def __init__(self, decoder: Decoder, head: EagleHead, ratio: Tensor, frequent: Tensor, single: float):
        self.single = single
        self.network = EagleTraining(head, ratio)
        self.layers = ()  # the feature behind the final norm, which every batch has
        self.table = decoder.model.embed_tokens
        self.vocabulary = Vocabulary(decoder.lm_head.weight)
        self.frequent = frequent

    def embed(self, ids: Tensor) -> Tensor:
        return self.table(ids) * self.network.ratio

    def outputs(self, batch: Batch, hidden: Tensor, steps: int) -> list[Tensor]:
        return unroll(self.network.head, self.embed, batch, hidden, steps)

    def loss(self, batch: Batch, progress: float) -> Tensor:
        where, row = judged_rows(batch.choice >= 0, STEPS)
        noise = (torch.rand_like(batch.last) - 0.5) * NOISE
        outputs = self.outputs(batch, batch.last + noise, 1 if progress < self.single else STEPS)
        feature = batch.last[where, row]
        some = torch.rand(len(where)) < SAID
        rows = self.vocabulary.draw(torch.cat([self.frequent, batch.choice[where, row][some]]))
        guesses = [out[where, row - s - 1] for s, out in enumerate(outputs)]
        losses = [F.smooth_l1_loss(out, feature) + soft_loss(out[some], feature[some], rows) for out in guesses]
        return torch.stack(losses).mean()

    def hits(self, batch: Batch) -> Tensor:
        outputs = self.outputs(batch, batch.last, GUESSES)
        return chain_hits(batch, outputs, lambda out: self.vocabulary.logits(out).argmax(-1))


def build(decoder: Decoder, store: Store, start: Path | None) -> Task:
    sample = store.batch(store.numbers(held_out=False)[:1], ())
    ratio = sample.last.std() / decoder.model.embed_tokens.weight.std()
    if start is None:
        head = fresh_head(decoder)
        with torch.no_grad():
            warm_start(head, decoder, store, ratio)
    else:
        head = earlier(start, decoder)
        assert isinstance(head, EagleHead)
        scale_embedding(head, 1 / ratio)
    frequent = torch.tensor(store.frequent(min(FREQUENT, decoder.config.vocab)))
    return Task(decoder, head, ratio, frequent, SINGLE if start is None else 0.0)


def scale_embedding(head: EagleHead, by: Tensor) -> None:
    with torch.no_grad():
        head.fc.weight[:, : head.config.hidden] *= by


def drafter(task: Task, decoder: Decoder) -> Drafter:
    """The published layout; the ratio goes back into fc."""
    head = copy.deepcopy(task.network.head)
    scale_embedding(head, task.network.ratio)
    config = shared_config(decoder, "LlamaForCausalLM") | {"bias": True}
    return Drafter("EAGLE head", "EAGLE and EAGLE-2 (arXiv 2401.15077, 2406.16858)", config, head.state_dict())


def main() -> None:
    plan = loop.arguments("eagle", __doc__ or "", size=1, rate=2e-4, minutes=25)
    model, store = loop.open_target(plan)
    task = build(model.decoder, store, plan.start)
    trainer = loop.Trainer(task, store, plan)
    trainer.train()
    publish(drafter(task, model.decoder), trainer, model)


if __name__ == "__main__":
    main()
