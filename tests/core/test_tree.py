"""Trees: who sees whom, who is kept, what a growth rule spends, and that every guess is its own path's guess."""

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from models.load import Model, Network, finish
from spec_core import growth
from spec_core.contract import Clock, Draft, KnobValue
from spec_core.growth import FeatureDrafter, Grow, Guess, Sprout, grow_chain, grow_dynamic, grow_static
from spec_core.methods import find
from spec_core.methods.eagle import STATIC_TREE, TOP_K
from spec_core.prefixes import likeliest
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, Losers, Pass, PassKind, Sampling, Step, Verdict, check_step, depths
from spec_core.tree import chain, children, kept_parents, losers, shallower, visible
from tests.core.drafters import LONG, build, logits_of, tree_of
from tests.toy import random_network, toy_model

GOLDEN = Path(__file__).parent.parent / "golden" / "tree_cases.json"
PROMPT = [7, 11, 7, 11, 30, 2, 9]
TREES = ("eagle", "eagle2", "eagle3")


def random_parents(dice: random.Random, n: int) -> list[int]:
    return [-1, *(dice.randrange(node) for node in range(1, n))]


def ancestors(parents: Sequence[int], node: int) -> set[int]:
    """The slow way: walk up."""
    found = {node}
    while (node := parents[node]) >= 0:
        found.add(node)
    return found


# Shapes


def golden_cases() -> list[dict[str, Any]]:
    return json.loads(GOLDEN.read_text())["cases"]


def test_masks_and_depths_are_those_of_the_reference_builders() -> None:
    cases = golden_cases()
    assert len(cases) == 20
    for case in cases:
        parents = case["parents"]
        tree = tree_of(0, parents[1:], [0] * (len(parents) - 1))
        assert ["".join(map(str, map(int, row))) for row in visible(parents)] == case["tree_mask_rows"], case["id"]
        assert [case["prefix_len"] + d for d in depths(tree)] == case["position_ids"], case["id"]


@pytest.mark.parametrize("seed", range(10))
def test_a_node_sees_its_ancestors_itself_and_nothing_else(seed: int) -> None:
    parents = random_parents(random.Random(seed), 40)
    for node, row in enumerate(visible(parents)):
        assert {i for i, seen in enumerate(row) if seen} == ancestors(parents, node)


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_in_one_pass_is_every_path_alone(seed: int, model: Model) -> None:
    """Mask, positions and order of rows, pruned nodes included: logits and features per node as if run by itself."""
    dice = random.Random(seed)
    parents = random_parents(dice, 24)
    tree = tree_of(9, parents[1:], [dice.randrange(64) for _ in parents[1:]])
    tree = shallower(tree, 3)
    target = CachedTarget(model, (2,), LONG)
    target.prefill(PROMPT[:-1], Clock())
    scores = target.score(tree, Clock())
    assert len(scores.logits) == len(scores.features) == len(tree.kept) < 24
    for row, node in enumerate(tree.kept):
        path = sorted(ancestors(parents, node))
        alone = logits_of(model, PROMPT[:-1] + [tree.tokens[i] for i in path])[-1]
        torch.testing.assert_close(scores.logits[row], alone, atol=2e-4, rtol=1e-3)


def test_rows_of_kept_nodes_and_their_children() -> None:
    tree = shallower(tree_of(1, [0, 0, 1, 3, 2], [2, 3, 4, 5, 6]), 2)
    assert tree.kept == [0, 1, 2, 3, 5]
    assert kept_parents(tree) == [-1, 0, 0, 1, 2]
    assert children(tree) == {0: [1, 2], 1: [3], 2: [5], 3: [], 5: []}
    assert shallower(tree, 0).kept == [0]
    assert shallower(tree, 9) is tree


def test_losers_name_three_and_count_the_rest() -> None:
    lost = losers(4, [9, 8, 7, 6, 5, 4], [0.5, 0.2, 0.1, 0.05, 0.02, 0.01], {8})
    assert (lost.node, lost.tokens, lost.probs, lost.more) == (4, [9, 7, 6], [0.5, 0.1, 0.05], 2)
    assert losers(0, [1, 2], [0.6, 0.4], {1, 2}).more == 0


# Growth


def check(tree: DraftTree) -> None:
    """The trace's own check: parents precede children, kept is ancestor-closed and in order."""
    check_step(Step(tree, Verdict([0], 0, [1.0] * len(tree.kept), [], []), [], [0]))


@pytest.mark.parametrize("seed", range(40))
def test_tied_scores_never_lose_a_parent(seed: int) -> None:
    """Confident children tie with their parents: 0.0 exactly, or too small to change an fp32 sum."""
    dice = random.Random(seed)
    sprout = Sprout(0)
    beam = sprout.branch([-1], Guess(torch.empty(0), [[1, 2, 3]], [[-3.0, -3.0, -4.0]]))
    for _ in range(4):
        rows = [sorted((dice.choice([-0.0, -1e-9, -1e-8, -2.0]) for _ in range(3)), reverse=True) for _ in beam]
        beam = sprout.best(sprout.branch(beam, Guess(torch.empty(0), [[1, 2, 3]] * len(beam), rows)), 3)
    for nodes in range(1, 20):
        kept = set(sprout.best(range(len(sprout.tokens)), nodes))
        assert all(sprout.parents[i] in {-1, *kept} for i in kept)
        tree = sprout.finish(list(kept), Clock())
        check(tree)
        assert len(tree.kept) == nodes + 1


def saturated(model: Model) -> tuple[Model, Network]:
    """An EAGLE-3 head so sure that its log-softmax is 0 for the best token, in a fresh pair."""
    module = random_network("eagle3", 64, 5)
    with torch.no_grad():
        module.get_parameter("lm_head.weight").mul_(1e4)
    return model, finish(module, model, "sure", "sure")


def grown(model: Model, network: Network, grow: Grow, clock: Clock | None = None) -> tuple[FeatureDrafter, Draft]:
    drafter = FeatureDrafter(model, network, grow)
    scores = CachedTarget(model, drafter.layers, LONG).prefill(PROMPT[:-1], Clock())
    drafter.observe(PROMPT[:-1], scores.features, Clock())
    return drafter, drafter.propose(PROMPT[-1], torch.Generator().manual_seed(0), clock or Clock())


@torch.inference_mode()
def walk(model: Model, network: Network, path: Sequence[int]) -> float:
    """q of the last token of `path`, walked as a plain chain: one row at a time, no tree, no mask."""
    drafter = FeatureDrafter(model, network, grow_chain(1))
    scores = CachedTarget(model, drafter.layers, LONG).prefill(PROMPT[:-1], Clock())
    drafter.observe(PROMPT[:-1], scores.features, Clock())
    out = drafter.extend([*drafter.waiting[1:], PROMPT[-1]], Clock())
    for token in path[:-1]:
        hidden = drafter.head.feedback(out)[None]
        out = drafter.run([token], hidden, [drafter.cache.length], None)
    logits = drafter.law(out, Clock())[0]
    words = drafter.head.to_target(torch.arange(len(logits))).tolist()
    return float(logits.softmax(-1)[words.index(path[-1])])


def path_to(tree: DraftTree, node: int) -> list[int]:
    above = sorted(ancestors(tree.parents, node))
    return [tree.tokens[i] for i in above[1:]]


def test_a_saturated_head_keeps_its_trees_closed() -> None:
    model, network = saturated(toy_model())
    for nodes in (1, 3, 7, 20):
        tree = grown(model, network, grow_dynamic(nodes, 5, 3))[1].tree
        check(tree)
        assert len(tree.kept) == nodes + 1
    sure = [node for node in tree.kept[1:] if tree.probs[node] == 1.0]
    assert len(sure) > 3, "the head must be saturated for this test to mean anything"


GROWTHS = {
    "static": grow_static(STATIC_TREE, TOP_K),
    "dynamic": grow_dynamic(16, 4, 3),
    "wide": grow_dynamic(30, 2, 8),
    "chain": grow_chain(5),
    "drawn": grow_chain(5, Sampling(temperature=1.0)),
}


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
@pytest.mark.parametrize("name", GROWTHS)
def test_every_guess_is_the_guess_of_its_own_path(
    name: str, kind: str, model: Model, networks: dict[str, Network]
) -> None:
    """In a tree pass a node must see what it would see alone: its q is that of a plain walk down its path."""
    drafter, draft = grown(model, networks[kind], GROWTHS[name])
    check(draft.tree)
    assert drafter.cache.length == len(PROMPT) - 1  # nothing guessed stays behind
    nodes = random.Random(1).sample(range(1, len(draft.tree.tokens)), min(12, len(draft.tree.tokens) - 1))
    for node in nodes:
        q = walk(model, networks[kind], path_to(draft.tree, node))
        assert draft.tree.probs[node] == pytest.approx(q, abs=2e-3)


def test_siblings_are_the_best_tokens_of_their_parent_in_order(model: Model, networks: dict[str, Network]) -> None:
    tree = grown(model, networks["eagle"], grow_dynamic(30, 3, 4))[1].tree
    for lost in tree.others:
        drafted = [i for i, parent in enumerate(tree.parents) if parent == lost.node]
        shown = [tree.probs[i] for i in drafted] + lost.probs
        assert sum(shown) <= 1 + 1e-4
        assert [tree.probs[i] for i in drafted] == sorted((tree.probs[i] for i in drafted), reverse=True)


def test_the_dynamic_tree_keeps_the_most_probable_nodes(model: Model, networks: dict[str, Network]) -> None:
    """Against all paths walked alone: no node left out beats one that was kept."""
    tree = grown(model, networks["eagle"], grow_dynamic(6, 2, 3))[1].tree

    def total(node: int) -> float:
        return sum(math.log(tree.probs[i]) for i in ancestors(tree.parents, node) - {0})

    pruned = set(range(len(tree.tokens))) - set(tree.kept)
    worst = min(total(node) for node in tree.kept)
    assert all(total(node) <= worst + 1e-4 for node in pruned)
    for lost in tree.others:
        for p in lost.probs:
            assert total(lost.node) + math.log(p) <= worst + 1e-4


@pytest.mark.parametrize("order", [1, -1], ids=["as listed", "reversed"])
def test_a_static_tree_goes_by_path_not_by_place(order: int, model: Model, networks: dict[str, Network]) -> None:
    """[0] has only a leaf, [1] goes deeper: indexing levels by "parents so far" would continue from [0]'s child."""
    paths = [(0,), (1,), (0, 0), (1, 0), (1, 0, 0)][::order]
    tree = grown(model, networks["eagle"], grow_static(paths, 4))[1].tree
    alone = grown(model, networks["eagle"], grow_static([(1,), (1, 0), (1, 0, 0)], 4))[1].tree
    deepest = depths(tree).index(3)
    assert path_to(tree, deepest) == alone.tokens[1:]
    assert [tree.probs[i] for i in sorted(ancestors(tree.parents, deepest))] == pytest.approx(alone.probs, abs=2e-3)
    assert tree.kept == [0, 1, 2, 3, 4, 5]
    ranks = {tuple(path_to(tree, node)) for node in range(1, 6)}
    assert len(ranks) == 5


def test_the_published_static_tree_has_its_25_nodes(model: Model, networks: dict[str, Network]) -> None:
    tree = grown(model, networks["eagle"], grow_static(STATIC_TREE, TOP_K))[1].tree
    assert len(tree.kept) == 26
    assert Counter(depths(tree)) == {0: 1, 1: 4, 2: 8, 3: 8, 4: 3, 5: 2}


# What a draft costs


def passes_of(
    method: str, knobs: dict[str, KnobValue], model: Model, networks: dict[str, Network], temperature: float = 0.0
) -> tuple[DraftTree, list[Pass]]:
    drafter = build(find(method), model, networks, knobs, Sampling(temperature))
    scores = CachedTarget(model, drafter.layers, LONG).prefill(PROMPT[:-1], Clock())
    drafter.observe(PROMPT[:-1], scores.features, Clock())
    clock = Clock()
    tree = drafter.propose(PROMPT[-1], torch.Generator().manual_seed(0), clock).tree
    return tree, [p for p in clock.passes if p.kind in ("draft", "head")]


@pytest.mark.parametrize("method", TREES)
def test_a_prompt_may_be_read_in_parts(
    method: str, model: Model, networks: dict[str, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, passes = passes_of(method, {}, model, networks)
    monkeypatch.setattr(growth, "CHUNK", 3)
    parts, same = passes_of(method, {}, model, networks)
    assert parts.tokens == whole.tokens
    assert [(p.kind, p.rows) for p in passes] == [(p.kind, p.rows) for p in same]


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("shape", ["chain", "sampled"])
def test_what_only_a_picture_wants_is_not_booked_as_the_drafters_time(
    shape: str, method: str, model: Model, networks: dict[str, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lost is ranked with the clock stopped, as in a block."""
    inside: list[bool] = []
    ranked, measure = growth.losers, Clock.measure
    open_kinds: list[str] = []

    @contextmanager
    def watched(self: Clock, kind: PassKind, rows: int = 0, layers: int = 0) -> Iterator[None]:
        open_kinds.append(kind)
        with measure(self, kind, rows, layers):
            yield
        open_kinds.pop()

    def look(*args: Any) -> Losers:
        inside.append(open_kinds == ["record"])
        return ranked(*args)

    monkeypatch.setattr(Clock, "measure", watched)
    monkeypatch.setattr(growth, "losers", look)
    for knobs in ({"shape": shape, "depth": 3}, {}):
        passes_of(method, knobs, model, networks, temperature=1.0)
    assert inside
    assert all(inside)


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("shape", ["chain", "sampled"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_chain_of_k_costs_k_dependent_passes_each_with_a_head_call(
    k: int, shape: str, method: str, model: Model, networks: dict[str, Network]
) -> None:
    tree, passes = passes_of(method, {"shape": shape, "depth": k}, model, networks, temperature=1.0)
    assert [p.kind for p in passes] == ["draft", "head"] * k
    assert [p.rows for p in passes] == [1] * (2 * k)  # the prompt has been read before
    assert (len(tree.tokens), tree.passes) == (k + 1, [-1, *range(k)])


@pytest.mark.parametrize("method", ["eagle2", "eagle3"])
@pytest.mark.parametrize("depth", [1, 2, 6])
def test_a_tree_of_depth_d_costs_d_dependent_passes(
    depth: int, method: str, model: Model, networks: dict[str, Network]
) -> None:
    tree, passes = passes_of(method, {"depth": depth, "top_k": 3, "tokens": 200}, model, networks)
    assert [p.kind for p in passes] == ["draft", "head"] * depth
    assert [p.rows for p in passes] == [1, 1, *[3] * (2 * depth - 2)]
    assert max(depths(tree)) == depth
    assert len(tree.kept) == 1 + 3 + 9 * (depth - 1)  # all that was looked at, if the budget allows
    assert all(tree.passes[i] == d - 1 for i, d in enumerate(depths(tree)))


def test_the_static_tree_runs_only_nodes_with_children(model: Model, networks: dict[str, Network]) -> None:
    tree, passes = passes_of("eagle", {}, model, networks)
    assert [(p.kind, p.rows) for p in passes] == [
        *(("draft", 1), ("head", 1)),
        *(("draft", 4), ("head", 4)),
        *(("draft", 4), ("head", 4)),
        *(("draft", 1), ("head", 1)),
        *(("draft", 1), ("head", 1)),
    ]
    assert sum(tree.beam) == 11
    shallow = passes_of("eagle", {"depth": 2}, model, networks)[1]
    assert [p.kind for p in shallow] == ["draft", "head"] * 2


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("block", [2, 8, 32])
def test_a_block_costs_one_pass_however_long(
    block: int, layers: int, model: Model, networks: dict[str, Network]
) -> None:
    tree, passes = passes_of("dflash", {"block": block, "layers": layers}, model, networks)
    assert [(p.kind, p.rows, p.layers) for p in passes] == [("draft", 1 + block, layers), ("head", block - 1, 0)]
    assert (len(tree.tokens), tree.passes) == (block, [-1, *[0] * (block - 1)])


def test_a_blocks_layers_each_fill_it_and_the_last_fill_is_the_draft(
    model: Model, networks: dict[str, Network]
) -> None:
    tree, _ = passes_of("dflash", {"block": 6, "guesses": True}, model, networks)
    assert len(tree.layers) == 2
    assert tree.layers[-1] == tree.tokens[1:]
    one, _ = passes_of("dflash", {"block": 6, "layers": 1}, model, networks)
    assert one.tokens[1:] == tree.layers[0]
    assert one.layers == []


def test_the_likeliest_prefixes_are_those_of_all_prefixes_ranked() -> None:
    rng = torch.Generator().manual_seed(3)
    scores = torch.log_softmax(torch.randn(4, 5, generator=rng, dtype=torch.double), -1).sort(-1, descending=True)[0]
    every = [
        (sum(float(scores[slot][rank]) for slot, rank in enumerate(ranks)), ranks)
        for length in range(1, 5)
        for ranks in itertools.product(range(5), repeat=length)
    ]
    wanted = {ranks for _, ranks in sorted(every, reverse=True)[:40]}
    paths: list[tuple[int, ...]] = [()]
    for parent, slot, rank in likeliest(scores.tolist(), 40):
        assert slot == len(paths[parent]), "a child stands one slot behind its parent, which came before it"
        paths.append((*paths[parent], rank))
    assert set(paths[1:]) == wanted
    assert len(likeliest(scores.tolist(), 10**6)) == len(every), "and no more than there are"
    assert likeliest([], 5) == []


def test_a_tree_of_prefixes_costs_what_its_block_costs(model: Model, networks: dict[str, Network]) -> None:
    tree, passes = passes_of("ddtree", {"block": 6, "tokens": 20}, model, networks)
    block, same = passes_of("dflash", {"block": 6}, model, networks)
    assert [(p.kind, p.rows, p.layers) for p in passes] == [(p.kind, p.rows, p.layers) for p in same]
    assert (len(tree.tokens), set(tree.passes)) == (21, {-1, 0})
    assert tree.tokens[1] == block.tokens[1], "the likeliest of all is the block's first guess"
    assert tree.probs[1] == pytest.approx(block.probs[1])
    level = depths(tree)
    at_depth = {d: {q for q, depth in zip(tree.probs, level, strict=True) if depth == d} for d in set(level)}
    assert all(len(found) <= 10 for found in at_depth.values()), "q belongs to the slot, whatever the prefix"


def test_a_tree_of_prefixes_has_the_nodes_asked_for_however_short_its_block(
    model: Model, networks: dict[str, Network]
) -> None:
    tree, _ = passes_of("ddtree", {"block": 2, "tokens": 40}, model, networks)
    assert tree.parents == [-1] + [0] * 40
    assert len(set(tree.tokens[1:])) == 40


@pytest.mark.parametrize("method", [*TREES, "ddtree"])
def test_every_child_looked_at_is_a_node_or_a_loser(method: str, model: Model, networks: dict[str, Network]) -> None:
    tree, _ = passes_of(method, {}, model, networks)
    assert tree.others
    assert sorted(lost.node for lost in tree.others) == [i for i, grown in enumerate(tree.beam) if grown]
    for lost in tree.others:
        drafted = {tree.tokens[i] for i, parent in enumerate(tree.parents) if parent == lost.node}
        assert len(drafted) + len(lost.tokens) + lost.more == max(10, len(drafted))
        assert not drafted & set(lost.tokens)
        assert lost.probs == sorted(lost.probs, reverse=True)


@pytest.mark.parametrize("method", [*TREES, "dflash"])
def test_a_chain_shows_what_lost_at_every_place(method: str, model: Model, networks: dict[str, Network]) -> None:
    shape: dict[str, KnobValue] = {} if method == "dflash" else {"shape": "chain", "depth": 4}
    tree, _ = passes_of(method, shape, model, networks)
    assert [lost.node for lost in tree.others] == list(range(len(tree.tokens) - 1))
    for lost, guess, q in zip(tree.others, tree.tokens[1:], tree.probs[1:], strict=True):
        assert guess not in lost.tokens
        assert (len(lost.tokens), lost.more) == (3, 6)
        assert q >= lost.probs[0]  # the argmax was drafted


def test_a_drawn_chain_brings_the_law_it_was_drawn_from(model: Model, networks: dict[str, Network]) -> None:
    """q rows speak of the target's vocabulary: the draft's words carry all of it, its own guess what the tree says."""
    for kind in ("eagle", "eagle3"):
        draft = grown(model, networks[kind], grow_chain(4, Sampling(temperature=1.0)))[1]
        assert draft.q is not None
        for row, token, q in zip(draft.q, draft.tree.tokens[1:], draft.tree.probs[1:], strict=True):
            assert (len(row), float(row.sum())) == (64, pytest.approx(1))
            assert float(row[token]) == pytest.approx(q, rel=1e-4)
        unknown = set(range(64)) - set(networks[kind].module.to_target(torch.arange(48)).tolist())  # type: ignore[union-attr]
        assert kind == "eagle" or all(float(draft.q[0][token]) == 0 for token in unknown)
    assert grown(model, networks["eagle"], grow_chain(4, Sampling()))[1].q is None


def test_an_eagle_head_without_a_sure_row_is_no_drafter(model: Model, networks: dict[str, Network]) -> None:
    with pytest.raises(TypeError, match="toy-dflash is no EAGLE head"):
        FeatureDrafter(model, networks["dflash"], grow_chain(1))
    with pytest.raises(TypeError, match="toy-eagle is no DFlash drafter"):
        build(find("dflash"), model, {"dflash": networks["eagle"]}, {}, Sampling())


def test_a_chain_is_a_tree_with_one_child_per_node() -> None:
    tree = chain(5, [6, 7], [0.25, 1 / 3], [0, 1])
    assert (tree.parents, tree.passes, tree.beam, tree.kept) == (
        [-1, 0, 1],
        [-1, 0, 1],
        [True, True, False],
        [0, 1, 2],
    )
    assert tree.probs == [1.0, 0.25, 0.33333]
