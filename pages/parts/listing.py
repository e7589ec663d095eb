"""The program behind a picture: the loop, a method's draft, the rule of acceptance, as they stand in the files.

Read as text and taken apart with ast: no torch is needed, and what is shown cannot differ from what runs.
"""

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pages.pictures.scene import Scene
from spec_core.trace import KnobValue

ROOT = Path(__file__).parents[2]
Function = tuple[str, ast.FunctionDef]  # with the file it stands in

LOOP, RULES = "spec_core/decode.py", "spec_core/verify.py"

# What a move runs: statements that contain one of these, wherever they are shown. Keys are kinds of frames; `.first` is
# the first of its kind in a step.
DRAFT = "drafter.propose("
MARKS: dict[str, tuple[str, ...]] = {
    "prefill": ("target.prefill(", "drafter.observe(plan.prompt"),
    "nothing": (DRAFT, "Draft(trunk(root))", "Draft(chain(root, [], [], []))"),
    "grow.first": (
        DRAFT,
        "self.grow(",
        "self.extend(",
        "sprout.branch([-1]",
        "logits = drafter.law(",
        "tokens.append(",
    ),
    "grow": (
        DRAFT,
        "self.grow(",
        "drafter.level(",
        "drafter.read(out",
        "sprout.best(grown",
        "logits = drafter.law(",
        "tokens.append(",
    ),
    "block": (
        DRAFT,
        "clock.measure('draft', rows",
        "clock.measure('head', self.block",
        "self.shape(",
        "Draft(chain(root, guesses",
    ),
    "prune": ("sprout.best(range(", "sprout.finish("),
    "target": ("target.score(",),
    "accept": ("walk = verify(", "child = next(", "accepted = u *", "path.append(child)"),
    "reject": ("walk = verify(", "if child < 0", "if not accepted"),
    "end": ("walk = verify(", "if child < 0", "last = choose("),
    "commit": ("done += new", "target.commit(", "drafter.observe([draft", "new = plan.cut("),
    "read": ("drafter.observe(",),
    "feature": ("drafter.observe(", "torch.cat(self.features)"),
    "fuse": ("self.head.fuse(",),
    "embed": ("successors = ",),
    "shift": ("successors = ",),
    "layer": ("self.extend(", "out = self.run(successors", "self.head(embedded, context"),
    "head": ("sprout.branch([-1]", "logits = drafter.law(", "self.law(out, clock)", "self.read(outputs[-1])"),
    "back": ("drafter.level(", "self.head.feedback("),
    "again": ("drafter.level(", "drafter.read(out"),
    "chain": ("drafter.level(", "drafter.read(out"),
    "expand": ("drafter.level(", "drafter.read(out", "sprout.branch(beam"),
    "choose": ("sprout.best(grown",),
    "rerank": ("sprout.best(range(",),
    "masks": ("slots = [root]",),
    "inject": ("self.head.context(",),
    "cache": ("self.cache.crop(",),
    "last": ("self.read(outputs[-1])", "sprout.branch(beam"),
    "branch": ("mask = sight(",),
    "slot": ("self.head.masks(",),
    "guess": (DRAFT,),
    "check": ("target.score(",),
    "text": ("self.extend(",),
    "join": ("out = self.run(successors",),
    "drawn": ("else draw(q",),
    "asked": ("target.score(",),
    "dice": ("u = float(torch.rand",),
    "ratio": ("accepted = u *",),
    "held": ("path.append(child)",),
    "refused": ("if not accepted",),
    "over": ("residual(p, q",),
    "instead": ("residual(p, q",),
}


@dataclass(frozen=True)
class Excerpt:
    """One function. first: the number of its first line in the file `path`."""

    path: str
    first: int
    lines: tuple[str, ...]
    node: ast.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name


@functools.cache
def module(path: str) -> tuple[tuple[str, ...], ast.Module]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return tuple(text.splitlines()), ast.parse(text)


def excerpt(path: str, node: ast.FunctionDef) -> Excerpt:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return Excerpt(path, first, module(path)[0][first - 1 : node.end_lineno], node)


def loop() -> Excerpt:
    return excerpt(LOOP, function(LOOP, "decode"))


def rule(name: str) -> Excerpt:
    """name: as a step's decisions give it."""
    return excerpt(RULES, function(RULES, name))


def function(path: str, name: str) -> ast.FunctionDef:
    return next(node for node in module(path)[1].body if isinstance(node, ast.FunctionDef) and node.name == name)


def drafting(method: str, knobs: Mapping[str, KnobValue]) -> list[Excerpt]:
    """How `method` drafts with these knobs: its `propose`, then what that calls. Nothing where its file is not here."""
    path = f"spec_core/methods/{method}.py"
    if not method.isidentifier() or not (ROOT / path).exists():  # a trace may come from anywhere
        return []
    path, build = builder(path)
    homes = imported(ast.Module([*module(path)[1].body, build], []))
    defs = [found for name in called(taken(build.body, knobs)) if (found := defined(name, homes.get(name, path)))]
    ways = [(home, node) for home, node in defs if isinstance(node, ast.FunctionDef)]
    drafters = [(home, node) for home, node in defs if isinstance(node, ast.ClassDef)]
    nodes = [one for home, drafter in drafters for one in methods(home, drafter, [node for _, node in ways])]
    return [excerpt(home, node) for home, node in nodes[:1] + ways + nodes[1:]]


def builder(path: str) -> tuple[str, ast.FunctionDef]:
    """The `build` of a method's file, which may be another method's."""
    home = imported(module(path)[1]).get("build", path)
    return home, function(home, "build")


def imported(tree: ast.Module) -> dict[str, str]:
    """Every name that comes from a file of spec_core, also inside functions, with that file."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module)
    ours = [node for node in found if (node.module or "").startswith("spec_core.")]
    return {name.name: f"{(node.module or '').replace('.', '/')}.py" for node in ours for name in node.names}


def taken(body: Sequence[ast.stmt], knobs: Mapping[str, KnobValue]) -> Iterator[ast.stmt]:
    """The statements that run with these knobs: of an `if knob == value` only the branch that does."""
    for node in body:
        match node:
            case ast.If(ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value)]), body, orelse):
                yield from taken(body if knobs.get(name) == value else orelse, knobs)
            case _:
                yield node


def called(nodes: Iterator[ast.stmt]) -> list[str]:
    calls = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Call))
    return list(dict.fromkeys(call.func.id for call in calls if isinstance(call.func, ast.Name)))


def defined(name: str, path: str) -> tuple[str, ast.FunctionDef | ast.ClassDef] | None:
    """Where a function or class of ours stands; None for others, such as int."""
    body = module(path)[1].body
    found = (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)
    return next(((path, node) for node in found), None)


def methods(home: str, drafter: ast.ClassDef, ways: list[ast.FunctionDef]) -> list[Function]:
    """A drafter's `propose`, those of its methods that it or a way of growing calls, and functions beside the class."""
    own = inherited(home, drafter)
    if "propose" not in own:
        return []
    names = dict.fromkeys(name for node in (own["propose"][1], *ways) for name in attributes(node))
    chosen = [own["propose"], *(own[name] for name in names if name in own and name != "propose")]
    beside = [defined(name, home) for name in called(iter(node for place, node in chosen if place == home))]
    return [*chosen, *((place, node) for place, node in filter(None, beside) if isinstance(node, ast.FunctionDef))]


def inherited(home: str, drafter: ast.ClassDef) -> dict[str, Function]:
    """All methods of a class by name, its own before those of the classes it builds on."""
    found: dict[str, Function] = {}
    for base in drafter.bases:
        name = ast.unparse(base)
        match defined(name, imported(module(home)[1]).get(name, home)):
            case place, ast.ClassDef() as above:
                found |= inherited(place, above)
    return found | {node.name: (home, node) for node in drafter.body if isinstance(node, ast.FunctionDef)}


def attributes(node: ast.FunctionDef) -> list[str]:
    """The names of what is called on something: `extend` of self.extend(…)."""
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    return [func.attr for func in calls if isinstance(func, ast.Attribute)]


def move(scene: Scene, position: int) -> str:
    """The key of `MARKS` for a frame."""
    now = scene.frames[position]
    before = (one for one in scene.frames[:position] if (one.at, one.act, one.kind) == (now.at, now.act, now.kind))
    first = f"{now.kind}.first"
    return first if first in MARKS and next(before, None) is None else now.kind


def marked(shown: Excerpt, move: str) -> set[int]:
    """The lines of an excerpt, by their number in the file, that a move runs."""
    found = [node for node in ast.walk(shown.node) if isinstance(node, ast.stmt) and node is not shown.node]
    hits = [node for node in found if any(part in head(node) for part in MARKS.get(move, ()))]
    return {line for node in hits for line in range(node.lineno, reach(node) + 1)}


def head(node: ast.stmt) -> str:
    """A statement as one line of text; of one with a body the line before it."""
    return ast.unparse(node).split("\n")[0] if hasattr(node, "body") else ast.unparse(node)


def reach(node: ast.stmt) -> int:
    """The last line that belongs to a mark: a function's body inside another one does not."""
    own = not isinstance(node, ast.FunctionDef | ast.For | ast.While)
    return node.end_lineno or node.lineno if own else node.lineno
