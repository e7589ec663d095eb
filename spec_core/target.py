"""The target as the loop sees it: run the prompt, score a draft in one pass, commit the accepted path."""

from collections.abc import Sequence

import torch

from models.load import Model
from spec_core.contract import Clock, Scores
from spec_core.playback import target_cache
from spec_core.trace import DraftTree, depths
from spec_core.tree import kept_parents, visible

CHUNK = 512  # prompt rows per pass: bounds the mask, changes no result
MOST_ROWS = 256  # drafted nodes that fit behind a full context; the root has its place there already


class CachedTarget:
    """One run of one model. The cache holds every committed token but the newest, which is the next draft's root."""

    def __init__(self, model: Model, layers: Sequence[int], limit: int):
        self.model = model
        self.decoder = model.decoder
        self.layers = tuple(layers)
        self.cache = target_cache(model.decoder, self.layers, limit + MOST_ROWS, self)
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
        with clock.measure("target", len(tree.kept), self.decoder.config.layers):
            out = self.decoder(ids, positions, self.cache, mask, self.layers)
            logits = self.decoder.lm_head(out.last[0])
        return Scores(logits.float(), out.features[0])

    def commit(self, rows: list[int]) -> None:
        """Of the rows just scored keep these, a path from the root, and forget the others."""
        self.cache.keep(self.base, rows)
