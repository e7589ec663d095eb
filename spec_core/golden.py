"""Compares the core with numbers recorded from other implementations: `python -m spec_core.golden FOLDER...`.

One line per check. Exit status: 0 all as recorded, 1 something differs, 2 a folder cannot be read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from models import files, formats
from models.decoder import ConfigError
from models.heads import Eagle3Head, EagleHead, new_cache
from models.layers import additive
from models.load import Model, Network, finish, load_network, load_target
from spec_core import methods
from spec_core.contract import Clock, Draft, Drafter, Scores, Target
from spec_core.decode import Plan, decode
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, KnobValue, Sampling, Step, depths
from spec_core.tree import kept_parents, visible

ATOL = 1e-4  # the fixtures' own fp32 tolerance; their references agree among themselves to 6e-6


class FixtureError(ValueError):
    """A folder that holds no fixtures we can read; the message says what is wrong with it."""


@dataclass(frozen=True)
class Check:
    """One comparison. `fault` is empty where ours is what was recorded; `note` says what was excepted."""

    name: str
    fault: str = ""
    note: str = ""

    @property
    def line(self) -> str:
        tail = self.fault or self.note
        return f"{'FAIL' if self.fault else 'ok  '} {self.name}{': ' if tail else ''}{tail}"


def same(name: str, ours: Any, recorded: Any, note: str = "") -> Check:
    """Equal, or the first place where it is not."""
    if ours == recorded:
        return Check(name, note=note)
    if not isinstance(ours, list) or not isinstance(recorded, list):
        return Check(name, f"ours {ours}, recorded {recorded}")
    both = zip(ours, recorded, strict=False)
    at = next((i for i, (a, b) in enumerate(both) if a != b), None)
    if at is None:
        return Check(name, f"ours has {len(ours)} entries, recorded are {len(recorded)}")
    return Check(name, f"at {at} ours {ours[at]}, recorded {recorded[at]}")


def close(name: str, ours: Tensor, recorded: Tensor) -> Check:
    if ours.shape != recorded.shape:
        return Check(name, f"ours has shape {list(ours.shape)}, recorded is {list(recorded.shape)}")
    gap = float((ours.float() - recorded.float()).abs().max())
    return Check(name, note=f"within {gap:.1e}") if gap <= ATOL else Check(name, f"{gap:.1e} apart, allowed {ATOL:g}")


# Our side: the loop that decodes everything else, with its target and its drafter overheard.


class HeardTarget:
    """The target of a run, and all its logits."""

    def __init__(self, inner: Target):
        self.inner = inner
        self.scores: list[Scores] = []

    def prefill(self, ids: list[int], clock: Clock) -> Scores:
        self.scores.append(self.inner.prefill(ids, clock))
        return self.scores[-1]

    def score(self, tree: DraftTree, clock: Clock) -> Scores:
        self.scores.append(self.inner.score(tree, clock))
        return self.scores[-1]

    def commit(self, rows: list[int]) -> None:
        self.inner.commit(rows)


class HeardDrafter:
    """The drafter of a run, and what the LM head it reads said in each draft, call by call."""

    def __init__(self, inner: Drafter, lm_head: nn.Module):
        self.inner, self.lm_head, self.layers = inner, lm_head, inner.layers
        self.drafts: list[list[Tensor]] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.inner.observe(tokens, features, clock)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        said: list[Tensor] = []

        def listen(module: nn.Module, args: tuple[Tensor, ...], logits: Tensor) -> None:
            said.append(logits)

        hook = self.lm_head.register_forward_hook(listen)
        try:
            return self.inner.propose(root, rng, clock)
        finally:
            hook.remove()
            self.drafts.append(said)


@dataclass(frozen=True)
class Run:
    """A decode: prompt and answer, its steps behind the prefill, all target scores, all LM-head calls per draft."""

    prompt: list[int]
    ids: list[int]
    steps: list[Step]
    scores: list[Scores]
    drafts: list[list[Tensor]]

    @property
    def accepted(self) -> list[int]:
        return [len(step.verdict.path) - 1 for step in self.steps]

    @property
    def starts(self) -> list[int]:
        """Where each step's root stands in the text."""
        return [len(self.prompt) + sum(n + 1 for n in self.accepted[:i]) for i in range(len(self.steps))]


@dataclass(frozen=True)
class Recipe:
    """A method with its knobs."""

    key: str
    knobs: Mapping[str, KnobValue]


@dataclass(frozen=True)
class Fixture:
    """A folder of recorded numbers, with our target and drafter made of its weights."""

    folder: Path
    data: dict[str, Any]
    tensors: dict[str, Tensor]
    model: Model
    network: Network

    @property
    def name(self) -> str:
        return self.folder.name

    def case(self, name: str) -> dict[str, Any]:
        return next(case for case in self.data["cases"] if case["name"] == name)

    def play(self, recipe: Recipe, prompt: list[int], budget: int, stops: Sequence[int] = ()) -> Run:
        """Decode greedily. Only the stops given end the run: the recorded ones ignore their configs' ids."""
        method = methods.find(recipe.key)
        inner = method.build(self.model, self.network, method.settle(recipe.knobs), Sampling())
        own = self.network.module.lm_head if isinstance(self.network.module, Eagle3Head) else None
        drafter = HeardDrafter(inner, own or self.model.decoder.lm_head)
        target = HeardTarget(CachedTarget(self.model, inner.layers, len(prompt) + budget))
        plan = Plan(prompt, budget, self.model.decoder.config.max_positions, frozenset(stops))
        steps = list(decode(target, drafter, plan, Clock()))
        ids = prompt + [token for step in steps for token in step.committed]
        return Run(prompt, ids, steps[1:], target.scores, drafter.drafts)

    def plain(self, label: str, case: dict[str, Any]) -> Check:
        """Our decoding without a drafter against the recorded greedy ids."""
        prompt, recorded = case["prompt_ids"], case["greedy_ids"]
        run = self.play(Recipe("plain", {}), prompt, len(recorded) - len(prompt))
        return same(f"{label} greedy ids", run.ids, recorded)


# What every kind of fixture shares.

HEARD: dict[str, Callable[[Run, int], Tensor]] = {
    "target_logits_last": lambda run, n: run.scores[0].logits[0],
    "target_hidden": lambda run, n: run.scores[0].features,
    "features": lambda run, n: run.scores[0].features,
    "draft_logits": lambda run, n: torch.cat(run.drafts[n]),
    "root_logits": lambda run, n: run.drafts[n][0][0],
    "top10_logits": lambda run, n: torch.cat(run.drafts[n]).topk(10).values,
}


def numbers(fixture: Fixture, label: str, case: str, run: Run) -> Iterator[Check]:
    """Every stored tensor of a case; they are called case.step.what, with `prefill` for step 0."""
    for name, recorded in fixture.tensors.items():
        owner, when, what = name.split(".")
        if owner == case:
            ours = HEARD[what](run, 0 if when == "prefill" else int(when.removeprefix("step")))
            yield close(f"{label} {when} {what}", ours, recorded)


def extra(fixture: Fixture, record: dict[str, Any], recipe: Recipe, recorded_accepted: list[int]) -> Iterator[Check]:
    """A short run: another budget, block size or stop token. Its reference may go on past the end; ours may not."""
    case = fixture.case(record["case"])
    prompt = case["prompt_ids"]
    raw = record.get("dflash_ids") or record["raw_output_ids"]
    budget = record.get("max_new_tokens") or len(raw) - len(prompt)
    stops = record.get("stop_token_ids") or [i for i in [record.get("eos_token_id")] if i is not None]
    run = fixture.play(recipe, prompt, budget, stops)
    label = f"{fixture.name} {record['case']} {extra_name(record, stops)}"
    if "REFERENCE_DEFECT" in record["kind"]:
        note = f"REFERENCE_DEFECT, it stopped {len(case['greedy_ids']) - len(raw)} tokens early; ours equals greedy"
        yield same(f"{label} ids", run.ids, case["greedy_ids"], note)
        return
    yield same(f"{label} ids", run.ids, record.get("truncated_output_ids") or raw[: len(prompt) + budget])
    over = len(recorded_accepted) - len(run.accepted)
    note = f"the reference ran {over} more, past the end" if over > 0 else ""
    yield same(f"{label} accepted lengths", run.accepted, recorded_accepted[: len(run.accepted)], note)
    if blocks := record.get("block_ids"):
        yield same(f"{label} blocks", [step.draft.tokens for step in run.steps], blocks[: len(run.steps)])


def extra_name(record: dict[str, Any], stops: Sequence[int]) -> str:
    parts = [str(record.get("setting", "")), f"block {record['block_size']}" if "block_size" in record else ""]
    parts += [f"stop {stops}" if stops else f"budget {record['max_new_tokens']}"]
    return " ".join(part for part in parts if part)


# DFlash: blocks.


def check_dflash(fixture: Fixture) -> Iterator[Check]:
    recipe = Recipe("dflash", {"block": fixture.data["block_size"]})
    for case in fixture.data["cases"]:
        yield from check_blocks(fixture, f"{fixture.name} {case['name']}", case, recipe)
    for record in fixture.data["extra_runs"]:
        forced = record.get("block_size", fixture.data["block_size"])
        yield from extra(
            fixture, record, Recipe("dflash", {"block": forced}), [n - 1 for n in record["acceptance_lengths"]]
        )
    for name in fixture.data["draft_config_variants"]:
        yield from check_variant(fixture, name, recipe)


def check_blocks(fixture: Fixture, label: str, case: dict[str, Any], recipe: Recipe) -> Iterator[Check]:
    """All recorded steps, those past its budget too: ours is given the budget it takes to make them.

    That ours stops at a budget is what `extra` looks at.
    """
    prompt, steps = case["prompt_ids"], case["steps"]
    run = fixture.play(recipe, prompt, 1 + sum(s["accept_length"] for s in steps))
    yield from numbers(fixture, label, case["name"], run)
    said = [scores.logits.argmax(dim=-1).tolist() for scores in run.scores[1:]]
    yield same(f"{label} where the blocks start", run.starts, [s["start"] for s in steps])
    yield same(f"{label} blocks", [step.draft.tokens for step in run.steps], [s["block_ids"] for s in steps])
    yield same(f"{label} target argmax", said, [s["target_argmax"] for s in steps])
    yield same(f"{label} accepted lengths", [n + 1 for n in run.accepted], case["acceptance_lengths"])
    yield same(f"{label} ids", run.ids[: len(case["dflash_ids"])], case["dflash_ids"])
    yield fixture.plain(label, case)


def check_variant(fixture: Fixture, name: str, recipe: Recipe) -> Iterator[Check]:
    """The same weights under another config must be the same drafter."""
    folder = (fixture.folder / fixture.data["draft"]).resolve()
    config, tensors = files.read_json(folder / name), files.read_tensors(folder)
    module = formats.parse(config, tensors, fixture.model.decoder.config)
    label = f"{fixture.name} {name}"
    yield same(f"{label} reads the same", module.config, fixture.network.module.config)
    other = replace(fixture, network=finish(module, fixture.model, name, ""))
    case = fixture.data["cases"][0]
    run = other.play(recipe, case["prompt_ids"], case["max_new_tokens"])
    yield same(f"{label} ids of {case['name']}", run.ids, case["dflash_ids"])


# EAGLE: trees.


def rows(step: Step) -> dict[int, int]:
    """Node → its row among the kept ones, which is how the references number nodes."""
    return {node: i for i, node in enumerate(step.draft.kept)}


def tokens_of(step: Step) -> list[int]:
    return [step.draft.tokens[node] for node in step.draft.kept]


def bits(mask: Sequence[Sequence[bool]]) -> list[str]:
    return ["".join("1" if seen else "0" for seen in row) for row in mask]


def leaf_paths(parents: Sequence[int]) -> list[list[int]]:
    """Root-to-leaf node lists, in the order of their leaves."""
    paths: list[list[int]] = []
    for node, parent in enumerate(parents):
        paths.append([*paths[parent], node] if node else [node])
    return [path for node, path in enumerate(paths) if node not in set(parents)]


def check_shape(label: str, parents: list[int], recorded: dict[str, Any]) -> Iterator[Check]:
    """Parents, depths, mask rows and leaf paths of one tree. The order of leaf paths says nothing and is left out."""
    yield same(f"{label} parents", parents, recorded["parents"])
    yield same(f"{label} depths", depths_of(parents), recorded["depths"])
    yield same(f"{label} mask rows", bits(visible(parents)), recorded["mask_rows"])
    paths = [[node for node in row if node >= 0] for row in recorded["retrieve_indices"]]
    yield same(f"{label} leaf paths", sorted(leaf_paths(parents)), sorted(paths))


def depths_of(parents: list[int]) -> list[int]:
    n = len(parents)
    return depths(DraftTree([0] * n, parents, [0] * n, [1.0] * n, [False] * n, list(range(n))))


def check_steps(label: str, run: Run, recorded: list[dict[str, Any]]) -> Iterator[Check]:
    """All recorded steps of a run that was given the budget it takes to make them."""
    paths = [[rows(step)[node] for node in step.verdict.path] for step in run.steps]
    yield same(f"{label} where the trees start", run.starts, [s["prefix_len"] for s in recorded])
    yield same(f"{label} tokens of all trees", [tokens_of(step) for step in run.steps], [s["tokens"] for s in recorded])
    if "parents" in recorded[0]:
        ours = [kept_parents(step.draft) for step in run.steps]
        yield same(f"{label} parents of all trees", ours, [s["parents"] for s in recorded])
    yield same(f"{label} accepted lengths", run.accepted, [s["accept_length"] for s in recorded])
    yield same(f"{label} accepted paths", paths, [s["accepted_nodes"] for s in recorded])


def check_static(fixture: Fixture) -> Iterator[Check]:
    recipe = Recipe("eagle", {})
    for case in fixture.data["cases"]:
        label, prompt = f"{fixture.name} {case['name']}", case["prompt_ids"]
        run = fixture.play(recipe, prompt, 1 + sum(n + 1 for n in case["accept_lengths"]))
        yield from numbers(fixture, label, case["name"], run)
        table = torch.cat(run.drafts[0]).topk(10).indices.tolist()
        yield same(f"{label} candidates of the first tree", table, case["first_step_top10_token_table"])
        yield from check_shape(f"{label} tree", kept_parents(run.steps[0].draft), fixture.data["tree"])
        yield from check_steps(label, run, case["steps"])
        yield same(f"{label} ids", run.ids[: len(case["output_ids"])], case["output_ids"])
        yield fixture.plain(label, case)
    for record in fixture.data["extra_runs"]:
        yield from extra(fixture, record, recipe, record["accept_lengths"])


def check_dynamic(fixture: Fixture) -> Iterator[Check]:
    key = "eagle3" if isinstance(fixture.network.module, Eagle3Head) else "eagle2"
    recipes = {
        name: Recipe(key, {"tokens": s["draft_nodes"], "depth": s["draft_levels"], "top_k": s["top_k"]})
        for name, s in fixture.data["settings"].items()
    }
    for case in fixture.data["cases"]:
        for setting, recipe in recipes.items():
            yield from check_growth(fixture, f"{fixture.name} {case['name']} {setting}", case, setting, recipe)
        yield fixture.plain(f"{fixture.name} {case['name']}", case)
    for record in fixture.data["extra_runs"]:
        yield from extra(fixture, record, recipes[record["setting"]], record["accept_lengths"])


def check_growth(fixture: Fixture, label: str, case: dict[str, Any], setting: str, recipe: Recipe) -> Iterator[Check]:
    recorded, prompt = case["runs"][setting], case["prompt_ids"]
    first, generated = recorded["first_tree"], recorded["eagenerate"]
    run = fixture.play(recipe, prompt, 1 + sum(n + 1 for n in generated["accept_lengths"]))
    if setting == list(fixture.data["settings"])[-1]:  # the stored logits are this setting's
        yield from numbers(fixture, label, case["name"], run)
    tree = run.steps[0].draft
    yield same(f"{label} first tree tokens", tokens_of(run.steps[0]), first["tokens"])
    yield from check_shape(f"{label} first tree", kept_parents(tree), first)
    totals = torch.tensor(path_scores(tree, run.drafts[0], fixture.network))[tree.kept]
    yield close(f"{label} first tree log-probabilities", totals, torch.tensor(first["cumulative_log_probs"]))
    yield from check_steps(label, run, generated["steps"])
    yield same(f"{label} ids", run.ids[: len(generated["output_ids"])], generated["output_ids"])


def path_scores(tree: DraftTree, said: list[Tensor], network: Network) -> list[float]:
    """Sum of log q along every node's path, from the LM-head calls: a trace rounds its probabilities.

    A call's rows are the nodes expanded in that pass, most confident first.
    """
    assert isinstance(network.module, EagleHead | Eagle3Head)
    total = [0.0] * len(tree.tokens)
    for number, logits in enumerate(said):
        column = network.module.to_target(torch.arange(logits.shape[-1])).tolist()
        law = torch.log_softmax(logits.float(), dim=-1)
        here = [i for i, by in enumerate(tree.passes) if by == number - 1 and tree.beam[i]]
        for row, parent in enumerate(sorted(here, key=lambda i: -total[i])):
            for child in (i for i, p in enumerate(tree.parents) if p == parent and i):
                total[child] = total[parent] + float(law[row, column.index(tree.tokens[child])])
    return total


# EAGLE-3 heads in the speculators layout: one teacher-forced sequence, no decode.


def check_speculators(folder: Path, data: dict[str, Any], tensors: dict[str, Tensor], model: Model) -> Iterator[Check]:
    for variant in data["variants"]:
        network = load_network(model, str((folder / variant).resolve()))
        logits = teacher_forced(
            model, network, tensors["input.token_ids"], tensors["input.features"], data["ttt_steps"]
        )
        for step, ours in enumerate(logits):
            recorded = tensors[f"{variant}.step{step}.logits"]
            yield close(f"{folder.name} {variant} step {step} logits", ours[: len(recorded)], recorded)


@torch.inference_mode()
def teacher_forced(model: Model, network: Network, ids: Tensor, features: Tensor, steps: int) -> list[Tensor]:
    """Logits of the first reading, then of readings from the head's own outputs.

    A later step's row i sees the first step's rows up to i and, of every later step, only its own row.
    """
    head, embed = network.module, model.decoder.model.embed_tokens
    assert isinstance(head, Eagle3Head)
    n = len(features)
    cache = new_cache(head, n * steps, embed.weight)
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    hidden, logits = head.fuse(features[None]), []
    for step in range(steps):
        rows = n - step  # every later step runs out of known tokens one row earlier
        mask = mask[:rows] if step == 0 else torch.cat([mask[:rows], torch.eye(rows, dtype=torch.bool)], dim=-1)
        tokens, positions = ids[1 + step : 1 + step + rows], torch.arange(rows) + step
        out = head(embed(tokens[None]), hidden[:, :rows], positions[None], cache, mask)
        logits.append(head.logits(out, model.decoder.lm_head)[0])
        hidden = head.feedback(out)
    return logits


# Trees without a model.


def check_trees(path: Path) -> Iterator[Check]:
    for case in read_json(path)["cases"]:
        label, parents, prefix = f"tree {case['id']}", case["parents"], case["prefix_len"]
        levels = depths_of(parents)
        mask = additive(torch.tensor(visible(parents)), prefix, torch.float32)
        assert mask is not None
        yield same(f"{label} depths", levels, case["depths"])
        yield same(f"{label} positions", [prefix + level for level in levels], case["position_ids"])
        yield same(f"{label} mask rows", bits(visible(parents)), case["tree_mask_rows"])
        yield same(f"{label} mask with its prefix", bits((mask[0, 0] == 0).tolist()), case["full_mask_rows"])
        yield same(f"{label} leaf paths", leaf_paths(parents), case["retrieve_paths"])


# The command.

DECODING: dict[str, Callable[[Fixture], Iterator[Check]]] = {
    "dflash": check_dflash,
    "eagle_static": check_static,
    "eagle_dynamic": check_dynamic,
}


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FixtureError(f"{path} cannot be read: {error}") from error


def check_folder(folder: Path) -> Iterator[Check]:
    """All checks of one folder with an expected.json, by its `kind`."""
    data = read_json(folder / "expected.json")
    kind = data.get("kind")
    if kind not in (*DECODING, "speculators_logits"):
        known = ", ".join([*DECODING, "speculators_logits"])
        raise FixtureError(f"{folder}: fixtures of kind {kind!r} are not known, only {known}")
    tensors = load_file(folder / "expected.safetensors")
    model = load_target(str((folder / data["target"]).resolve()), "cpu", "fp32")
    if kind == "speculators_logits":
        yield from check_speculators(folder, data, tensors, model)
        return
    network = load_network(model, str((folder / data["draft"]).resolve()))
    yield from DECODING[kind](Fixture(folder, data, tensors, model, network))


def found(path: Path) -> list[Path]:
    """The fixture files at or directly below `path`. A folder that is only a model has none, and that is no fault."""
    if path.is_file():
        return [path]
    here = [path / name for name in ("expected.json", "tree_cases.json") if (path / name).exists()]
    below = sorted(path.glob("*/expected.json"))
    if not here and not below and not (path / "config.json").exists():
        raise FixtureError(f"{path} holds no expected.json and no tree_cases.json: give a folder of fixtures")
    return here + below


def checks(path: Path) -> Iterator[Check]:
    for file in found(path):
        yield from check_folder(file.parent.resolve()) if file.name == "expected.json" else check_trees(file)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spec_core.golden", description="Compare with recorded numbers.")
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a fixture folder, or one that holds some"
    )
    done: list[Check] = []
    try:
        for folder in parser.parse_args(argv).folders:
            for check in checks(folder):
                print(check.line, flush=True)
                done.append(check)
        if not done:
            raise FixtureError("nothing to compare: none of these folders holds an expected.json or tree_cases.json")
    except (FixtureError, ConfigError, OSError, SafetensorError, RuntimeError) as error:
        print(f"golden: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(
            f"golden: the fixture lacks the field {error}: its format is not the one this version reads",
            file=sys.stderr,
        )
        return 2
    wrong = sum(bool(check.fault) for check in done)
    print(f"{len(done)} checks, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)  # as recorded; with networks this small more threads only wait for each other
    sys.exit(main())
