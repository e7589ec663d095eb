"""The two rules that keep speculation lossless, `match` and `reject`. How a draft was made decides which one runs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spec_core.contract import Draft
from spec_core.trace import Decision, DraftTree, Laws, Sampling, Verdict, Wanted, tidy
from spec_core.tree import children

FAVOURITES = 4  # how many of the target's top tokens a verdict names per node
BEST = 5  # how many of p's and of q's best tokens stand side by side where a guess was tested with reject


@dataclass(frozen=True)
class Asked:
    """One question to the target, as it was decided; probabilities are looked up later, for the record."""

    node: int
    child: int
    accepted: bool
    drawn: int | None = None
    u: float | None = None


@dataclass(frozen=True)
class Walk:
    """path: accepted nodes, root first; bonus: the target's own token behind them; asked: how it went."""

    path: list[int]
    bonus: int
    asked: list[Asked]

    def tokens(self, tree: DraftTree) -> list[int]:
        """What this step may add: the accepted guesses and the bonus."""
        return [*(tree.tokens[node] for node in self.path[1:]), self.bonus]


def law(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits [.., vocab] → the probabilities the sampler draws from: temperature first, then top-p.

    At temperature 0 nothing is drawn; the softmax of the raw logits is what a picture shows as p.
    """
    p = torch.softmax(logits.float() / (sampling.temperature or 1.0), dim=-1)
    if sampling.temperature == 0 or sampling.top_p >= 1:
        return p
    ranked, order = p.sort(dim=-1, descending=True, stable=True)
    ranked[ranked.cumsum(dim=-1) - ranked >= sampling.top_p] = 0
    p = torch.zeros_like(p).scatter(-1, order, ranked)
    return p / p.sum(dim=-1, keepdim=True)


def draw(p: Tensor, rng: torch.Generator) -> int:
    """One token from p [vocab]. A token of probability 0 is never drawn."""
    return int(torch.multinomial(p.cpu(), 1, generator=rng))


def choose(logits: Tensor, sampling: Sampling, rng: torch.Generator) -> int:
    """The token the target names after one row of logits [vocab]: the argmax, or a draw from its law."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    return draw(law(logits, sampling), rng)


def match(tree: DraftTree, logits: Tensor, sampling: Sampling, rng: torch.Generator) -> Walk:
    """Ask the target for a token at each node; if that token was drafted, step into it, else it is the bonus.

    Every token added is the target's own draw given sure tokens, so any draft fixed beforehand is lossless. This is the
    law of EAGLE's sibling-by-sibling rule with q = 1, and greedy verification is its temperature-0 case.
    """
    row = {node: i for i, node in enumerate(tree.kept)}
    below = children(tree)
    path, asked = [0], []
    while True:
        node = path[-1]
        drawn = choose(logits[row[node]], sampling, rng)
        child = next((c for c in below[node] if tree.tokens[c] == drawn), -1)
        asked.append(Asked(node, child, child >= 0, drawn))
        if child < 0:
            return Walk(path, drawn, asked)
        path.append(child)


def reject(tree: DraftTree, q: list[Tensor], logits: Tensor, sampling: Sampling, rng: torch.Generator) -> Walk:
    """Accept a guess really drawn from q with probability min(1, p / q); else draw from the residual (p - q)+.

    Leviathan et al. 2023 (arXiv 2211.17192 §2.3). Only for chains whose tokens were drawn from exactly these q.
    """
    path, asked = [0], []
    for row, child in enumerate(tree.kept[1:]):
        p, token = law(logits[row], sampling).cpu(), tree.tokens[child]
        u = float(torch.rand((), generator=rng, dtype=torch.float64))
        accepted = u * float(q[row][token]) < float(p[token])
        asked.append(Asked(path[-1], child, accepted, u=u))
        if not accepted:
            return Walk(path, draw(residual(p, q[row].cpu()), rng), asked)
        path.append(child)
    last = choose(logits[len(path) - 1], sampling, rng)
    return Walk(path, last, [*asked, Asked(path[-1], -1, accepted=False, drawn=last)])


def residual(p: Tensor, q: Tensor) -> Tensor:
    """(p - q)+ as weights; p itself where rounding leaves nothing of it."""
    left = (p - q).clamp(min=0)
    return left if float(left.sum()) > 0 else p


def verify(draft: Draft, logits: Tensor, sampling: Sampling, rng: torch.Generator) -> Walk:
    """logits [kept, vocab] → how far the draft holds. A draft that brings its q rows is a sampled one."""
    if draft.q is None:
        return match(draft.tree, logits, sampling, rng)
    return reject(draft.tree, draft.q, logits, sampling, rng)


def report(draft: Draft, logits: Tensor, sampling: Sampling, walk: Walk) -> Verdict:
    """A walk with the probabilities a reader wants to see beside it. Costs time, changes nothing."""
    tree = draft.tree
    p = law(logits, sampling)
    row = {node: i for i, node in enumerate(tree.kept)}
    above = [row.get(tree.parents[node], 0) for node in tree.kept]
    own = p[above, [tree.tokens[node] for node in tree.kept]].tolist()
    return Verdict(
        path=walk.path,
        bonus=walk.bonus,
        p=[1.0, *map(tidy, own[1:])],
        wanted=favourites(p, walk, tree, row),
        decisions=[decision(one, draft, p[row[one.node]]) for one in walk.asked],
        laws=[both(one, draft, p[row[one.node]], walk.bonus) for one in walk.asked if one.u is not None],
    )


def favourites(p: Tensor, walk: Walk, tree: DraftTree, row: dict[int, int]) -> list[Wanted]:
    """The target's top tokens at every node on the path and at its kept siblings."""
    on = set(walk.path)
    shown = [node for node in tree.kept if node in on or tree.parents[node] in on]
    top = p[[row[node] for node in shown]].topk(min(FAVOURITES, p.shape[-1]), dim=-1)
    pairs = zip(shown, top.indices.tolist(), top.values.tolist(), strict=True)
    return [Wanted(n, t, [tidy(x, 7) for x in v], tidy(max(0.0, 1 - sum(v)))) for n, t, v in pairs]


def decision(asked: Asked, draft: Draft, p: Tensor) -> Decision:
    tree, child = draft.tree, asked.child
    token = tree.tokens[child] if child >= 0 else asked.drawn
    rule = "match" if asked.u is None else "reject"
    exact = draft.q[asked.node] if draft.q is not None and asked.u is not None else None
    q = float(exact[token]) if exact is not None else tree.probs[child] if child >= 0 else 0.0
    held = float(p[token])
    return Decision(asked.node, child, rule, asked.accepted, tidy(held, 9), tidy(q, 9), asked.drawn, asked.u)


def both(asked: Asked, draft: Draft, p: Tensor, bonus: int) -> Laws:
    """p and q side by side at one tested node: the best of each, the guess, and what was drawn in its place."""
    assert draft.q is not None
    p, q = p.cpu(), draft.q[asked.node].cpu()
    named = {*p.topk(min(BEST, len(p))).indices.tolist(), *q.topk(min(BEST, len(q))).indices.tolist()}
    named |= {draft.tree.tokens[asked.child]} | (set() if asked.accepted else {bonus})
    tokens = sorted(named, key=lambda token: (-max(float(p[token]), float(q[token])), token))
    over = (p - q).clamp(min=0)
    rest = [tidy(max(0.0, float(row.double().sum() - row[tokens].double().sum()))) for row in (p, q, over)]
    return Laws(asked.node, tokens, named_of(p, tokens), named_of(q, tokens), named_of(over, tokens), rest)


def named_of(row: Tensor, tokens: list[int]) -> list[float]:
    return [tidy(float(x)) for x in row[tokens]]
