"""The target as the loop sees it: run the prompt, score a draft in one pass, commit the accepted path."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models import graphs
from models.load import Model
from spec_core.contract import Clock, Scores
from spec_core.trace import DraftTree, depths
from spec_core.tree import kept_parents, visible

CHUNK = 512  # prompt rows per pass: bounds the mask, changes no result
MOST_ROWS = 256  # the largest draft that fits behind a full context


class CachedTarget:
    """One run of one model. The cache holds every committed token but the newest, which is the next draft's root."""

    def __init__(self, model: Model, layers: Sequence[int], limit: int):
        self.model = model
        self.decoder = model.decoder
        self.layers = tuple(layers)
        room = limit + MOST_ROWS
        self.fixed = graphs.borrow(model.decoder, room, layers, self) if graphs.asked(model.device) else None
        self.cache = self.fixed.cache if self.fixed else model.decoder.new_cache(room)
        self.base = 0

    def tensor(self, numbers: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(numbers)], device=self.model.device)

    @torch.inference_mode()
    def prefill(self, ids: list[int], clock: Clock) -> Scores:
        """Run the prompt; logits [1, vocab] of its last token, features [n, width] of every token."""
        with clock.measure("target", len(ids), self.decoder.config.layers):
            features = []
            for start in range(0, len(ids), CHUNK):
                part = ids[start : start + CHUNK]
                positions = self.tensor(range(start, start + len(part)))
                out = self.decoder(self.tensor(part), positions, self.cache, wanted=self.layers)
                features.append(out.features[0])
            logits = self.decoder.lm_head(out.last[0, -1:])
        return Scores(logits.float(), torch.cat(features))

    @torch.inference_mode()
    def score(self, tree: DraftTree, clock: Clock) -> Scores:
        """One pass over the kept nodes: logits [kept, vocab] and features [kept, width], in kept order."""
        self.base = self.cache.length
        level = depths(tree)
        ids = self.tensor([tree.tokens[node] for node in tree.kept])
        positions = self.tensor([self.base + level[node] for node in tree.kept])
        mask = torch.tensor(visible(kept_parents(tree)), device=self.model.device) if len(tree.kept) > 1 else None
        work = self.prepared(ids, positions, mask, clock)
        with clock.measure("target", len(tree.kept), self.decoder.config.layers):
            features, logits = work()
        return Scores(logits.float(), features)

    def prepared(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, clock: Clock
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        """The pass over rows [1, n] behind the cache, which gives their features [n, width] and logits [n, vocab]."""
        fixed, n = self.fixed, ids.shape[1]
        if fixed is None or n > graphs.ROWS[-1]:
            return lambda: self.free_pass(ids, positions, mask)
        inputs = fixed.inputs(ids, positions, mask)
        if not fixed.play.ready(inputs):
            with clock.measure("record"):  # a graph is captured once, as a kernel is compiled: that is no decoding
                fixed.play.prepare(fixed.work, inputs)
        return lambda: fixed.score(inputs, n)

    def free_pass(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        out = self.decoder(ids, positions, self.cache, mask, self.layers)
        return out.features[0], self.decoder.lm_head(out.last[0])

    def commit(self, rows: list[int]) -> None:
        """Of the rows just scored keep these, a path from the root, and forget the others."""
        self.cache.keep(self.base, rows)
