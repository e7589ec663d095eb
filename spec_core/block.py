"""How DFlash drafts: [root, mask, mask …] goes through the network once, and every slot is read off at once."""

import torch
from torch import Tensor

from models.heads import DFlashHead
from models.load import Model, Network
from spec_core.contract import Clock, Draft
from spec_core.playback import draft_cache
from spec_core.trace import DraftTree, Losers
from spec_core.tree import chain, losers

LOOK = 10  # candidates ranked per slot, to show what lost
WHOLE = 5  # the top of the layer knobs: all layers there are, since some published drafters have eight


class BlockDrafter:
    """Block diffusion in one step (arXiv 2602.06036 §3).

    The cache holds keys and values of the target's features, one row per sure token; the block's own rows are cropped
    after every pass. Guesses are the argmax at any temperature: slots are read independently, so draws would not fit
    each other. They are verified with `match`.
    """

    def __init__(self, model: Model, network: Network, block: int, layers: int, guesses: bool):
        if not isinstance(network.module, DFlashHead):
            raise TypeError(f"{network.id} is no DFlash drafter")
        self.model, self.head = model, network.module
        most = self.head.config.layers
        self.block, self.depth, self.guesses = block, most if layers >= WHOLE else min(layers, most), guesses
        self.layers = self.head.config.feature_layers
        self.cache = draft_cache(self.head, model.decoder.model.embed_tokens.weight, self)
        self.features: list[Tensor] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        if not self.cache.length and len(features) > 1:  # the last waits for the first block
            self.remember(features[:-1], clock)
            features = features[-1:]
        self.features.append(features)

    @torch.inference_mode()
    def remember(self, features: Tensor, clock: Clock) -> None:
        """A prompt's features [n, width] become keys and values of every layer that runs."""
        self.cache.reserve(len(features))
        with clock.measure("draft", len(features), self.depth):
            places = torch.arange(len(features), device=self.model.device)[None]
            self.head.remember(self.head.context(features[None]), places, self.cache, self.depth)

    @torch.inference_mode()
    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        features, self.features = torch.cat(self.features), []
        new, past = len(features), self.cache.length
        rows = new + self.block
        self.cache.reserve(past + rows)
        with clock.measure("draft", rows, self.depth):
            outputs = self.fill(root, features, past)
        self.cache.crop(past + new)  # the next context row belongs where the root stands now
        with clock.measure("head", self.block - 1):
            logits = self.read(outputs[-1])
        return Draft(self.shape(root, outputs, logits, clock))

    def shape(self, root: int, outputs: list[Tensor], logits: Tensor, clock: Clock) -> DraftTree:
        """Logits [block - 1, words] of the slots → what is put to the target: here the path of favourites."""
        tokens = self.best(logits)
        with clock.measure("record"):
            probs, others = self.ranks(logits)
            layers = [self.best(self.read(out)) for out in outputs] if self.guesses else []
        return chain(root, tokens, probs, [0] * len(tokens), others, layers)

    def fill(self, root: int, features: Tensor, past: int) -> list[Tensor]:
        """One pass: new context rows at past.., the block behind them; each layer's output [1, block, H]."""
        start = past + len(features)
        slots = [root] + [self.head.config.mask_token] * (self.block - 1)
        words = self.head.words(self.model.decoder.model.embed_tokens)
        embedded = words(torch.tensor([slots], device=self.model.device))
        context = self.head.context(features[None])
        positions = torch.arange(past, start + self.block, device=self.model.device)[None]
        masks = self.head.masks(start, start + self.block, self.model.device)
        return self.head(embedded, context, positions, self.cache, masks, self.depth)

    def read(self, out: Tensor) -> Tensor:
        """A layer's output [1, block, H] → draft logits [block - 1, words]; slot j speaks of its own place's token."""
        return self.head.logits(out[0, 1:], self.model.decoder.lm_head).float()

    def best(self, logits: Tensor) -> list[int]:
        """The most probable word of each row, as a target id."""
        return self.head.to_target(logits.argmax(dim=-1)).tolist()

    def ranks(self, logits: Tensor) -> tuple[list[float], list[Losers]]:
        """q of every slot's guess, and what lost at each slot (noted at the node before it)."""
        q = torch.softmax(logits, dim=-1)
        best = q.topk(min(LOOK, q.shape[-1]), dim=-1)
        words, top = self.head.to_target(best.indices).tolist(), logits.argmax(dim=-1)
        own = self.head.to_target(top).tolist()
        others = [
            losers(slot, ids, ps, {token})
            for slot, (token, ids, ps) in enumerate(zip(own, words, best.values.tolist(), strict=True))
        ]
        return q[range(len(own)), top.tolist()].tolist(), others
