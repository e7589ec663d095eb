"""The loop: draft, one target pass, verdict, commit. Every method runs through these lines, plain decoding too."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch

from spec_core.contract import Clock, Draft, Drafter, Scores, Target
from spec_core.trace import EndReason, Sampling, Step, Word
from spec_core.tree import shallower, trunk
from spec_core.verify import Walk, report, verify


@dataclass(frozen=True)
class Plan:
    """What a run is asked for. `budget`: most new tokens; `limit`: prompt and answer together; `stops`: end tokens."""

    prompt: list[int]
    budget: int
    limit: int
    stops: frozenset[int] = frozenset()
    sampling: Sampling = Sampling()

    def cut(self, tokens: list[int], done: list[int]) -> list[int]:
        """Of a step's tokens those that enter the text: up to the budget, and nothing behind a stop token."""
        tokens = tokens[: self.budget - len(done)]
        stop = next((i for i, token in enumerate(tokens) if token in self.stops), len(tokens))
        return tokens[: stop + 1]

    def over(self, done: list[int]) -> EndReason | None:
        if done[-1] in self.stops:
            return "stop"
        if len(done) >= self.budget:
            return "length"
        return "context" if len(self.prompt) + len(done) >= self.limit else None

    def fit(self, draft: Draft, done: list[int]) -> Draft:
        """Leave out what could not be committed any more because the context is full."""
        room = self.limit - len(self.prompt) - len(done)
        return Draft(shallower(draft.tree, room - 1), draft.q)


def decode(target: Target, drafter: Drafter, plan: Plan, clock: Clock) -> Generator[Step, None, EndReason]:
    """Run `plan`, a Step at a time; returns why it ended. Greedy text equals plain decoding, whatever is drafted."""
    rng = torch.Generator().manual_seed(plan.sampling.seed)
    done: list[int] = []
    clock.start()
    draft, scores = Draft(trunk(plan.prompt[-1])), target.prefill(plan.prompt, clock)
    walk = verify(draft, scores.logits, plan.sampling, rng)
    new = plan.cut(walk.tokens(draft.tree), done)
    drafter.observe(plan.prompt, scores.features, clock)
    while True:
        yield record(draft, scores, walk, new, plan, clock)
        done += new
        if reason := plan.over(done):
            return reason
        clock.start()
        draft = plan.fit(drafter.propose(done[-1], rng, clock), done)
        scores = target.score(draft.tree, clock)
        walk = verify(draft, scores.logits, plan.sampling, rng)
        new = plan.cut(walk.tokens(draft.tree), done)
        sure = walk.path[: len(new)]  # a stop or the budget may end the step before its path does
        rows = [draft.tree.kept.index(node) for node in sure]
        target.commit(rows)
        drafter.observe([draft.tree.tokens[node] for node in sure], scores.features[rows], clock)


def record(draft: Draft, scores: Scores, walk: Walk, new: list[int], plan: Plan, clock: Clock) -> Step:
    """What just happened, as data; its own cost is booked as `record`."""
    with clock.measure("record"):
        verdict = report(draft, scores.logits, plan.sampling, walk)
    return Step(draft.tree, verdict, clock.passes, new)


def named(step: Step, word: Callable[[int], Word], seen: set[int]) -> dict[int, Word]:
    """Text of the ids a step names first; `seen` grows."""
    tree, verdict = step.draft, step.verdict
    lists = [tree.tokens, step.committed, [verdict.bonus], *tree.layers]
    lists += [lost.tokens for lost in tree.others] + [w.tokens for w in verdict.wanted]
    lists += [laws.tokens for laws in verdict.laws]
    fresh = {token for tokens in lists for token in tokens} - seen
    seen |= fresh
    return {token: word(token) for token in sorted(fresh)}


if __name__ == "__main__":
    from spec_core.terminal import command

    raise SystemExit(command())
