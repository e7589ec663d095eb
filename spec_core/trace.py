"""What one decode leaves behind: a header, one line per step, an end line. JSON Lines, plain data, no torch.

Everything drawn, counted, saved or shared is made from these types: a recorded run and a live one are the same thing.
"""

import gzip
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

SCHEMA = 1

PassKind = Literal["draft", "head", "target", "host", "record"]
EndReason = Literal["stop", "length", "context", "cancelled", "error"]
Word = str | list[int]  # a token's text, or its bytes where they are no text of their own
KnobValue = bool | int | float | str


class Refusal(ValueError):
    """What somebody asked for cannot be had: the message is a sentence for them, kind and values for translators."""

    def __init__(self, message: str, kind: str = "", values: Mapping[str, str | int | float] | None = None):
        super().__init__(message)
        self.kind, self.values = kind, dict(values or {})


class TraceError(Refusal):
    """A trace file that cannot be read."""


class Pass(Struct, frozen=True, omit_defaults=True):
    """One forward call. `start_ms` counts from the start of its step; `rows` went in; `layers` were run."""

    kind: PassKind
    start_ms: float
    ms: float
    rows: int
    layers: int


class Losers(Struct, frozen=True, omit_defaults=True):
    """Children of an expanded `node` that were not drafted: the best three, and how many more were considered."""

    node: int
    tokens: list[int]
    probs: list[float]
    more: int


class DraftTree(Struct, frozen=True, omit_defaults=True):
    """What a drafter grew in one step. Node 0 is the root: the last sure token, not yet in the target's cache.

    parents[i] < i, -1 for the root. passes[i]: which draft pass guessed node i (-1 root). probs[i]: q of its token at
    its place, given its parents (root 1). beam[i]: it was expanded. kept: nodes sent to the target, ascending,
    ancestor-closed, with 0. layers[l][j]: what draft layer l alone would have put in slot j (DFlash, optional).
    """

    tokens: list[int]
    parents: list[int]
    passes: list[int]
    probs: list[float]
    beam: list[bool]
    kept: list[int]
    others: list[Losers] = []
    layers: list[list[int]] = []


class Wanted(Struct, frozen=True, omit_defaults=True):
    """The target's favourites after `node`: top tokens with p, and the probability of all the rest."""

    node: int
    tokens: list[int]
    probs: list[float]
    rest: float


class Decision(Struct, frozen=True, omit_defaults=True):
    """One question to the target at `node`.

    match: it named `drawn`; accepted if that is `child`. reject: `child` was tested with uniform `u` < min(1, p / q).
    `child` is -1 where nothing was drafted. p and q belong to the child's token (match without a child: p of `drawn`).
    """

    node: int
    child: int
    rule: Literal["match", "reject"]
    accepted: bool
    p: float
    q: float
    drawn: int | None = None
    u: float | None = None


class Laws(Struct, frozen=True, omit_defaults=True):
    """Both laws at a `node` whose child was tested with reject: p and q of the best tokens of either, and `over`, what
    p has over q, (p - q)+, as it is before it is made to sum to 1. rest: p, q and over of all other tokens together."""

    node: int
    tokens: list[int]
    p: list[float]
    q: list[float]
    over: list[float]
    rest: list[float]


class Verdict(Struct, frozen=True, omit_defaults=True):
    """path: accepted nodes, root first. bonus: what the target adds. p[i]: its probability of kept[i]'s own token.

    laws: one for every node tested with reject."""

    path: list[int]
    bonus: int
    p: list[float]
    wanted: list[Wanted]
    decisions: list[Decision]
    laws: list[Laws] = []


class Step(Struct, frozen=True, omit_defaults=True):
    """One draft plus one target pass. Step 0 is the prefill: only a root (the prompt's last token) and a bonus.

    committed: ids really added, cut at a stop token or the budget. words: text of ids seen here for the first time.
    beyond: those of the committed ids that lie outside the drafter's own vocabulary; it could never have guessed them.
    """

    draft: DraftTree
    verdict: Verdict
    passes: list[Pass]
    committed: list[int]
    words: dict[int, Word] = {}
    beyond: list[int] = []

    @property
    def ms(self) -> float:
        """Time of the step without the cost of recording it."""
        return sum(p.ms for p in self.passes if p.kind != "record")


class End(Struct, frozen=True, omit_defaults=True):
    reason: EndReason
    steps: int
    tokens: int
    ms: float
    peak_memory_mb: float
    message: str = ""


class Card(Struct, frozen=True, omit_defaults=True):
    """A method as its users see it, so that replay needs no code of the method."""

    key: str
    title: str
    paper: str
    idea: str


class Network(Struct, frozen=True, omit_defaults=True):
    """Which weights: a name, a fingerprint, and the sizes a cost model needs.

    vocab: rows of the LM head it uses, its own or the target's. layer_weights, head_weights: numbers read by one layer
    and by the head in one pass. taps: target layers lent to a drafter, counted as Hugging Face's hidden_states.
    own_head: it reads its guesses off a head of its own. bytes_each: what is read of a weight on average, where that is
    not what the number type says.
    """

    id: str
    hash: str
    layers: int
    hidden: int
    vocab: int
    layer_weights: int
    head_weights: int
    taps: list[int] = []
    own_head: bool = False
    bytes_each: float = 0.0


class Prompt(Struct, frozen=True, omit_defaults=True):
    text: str
    ids: list[int]
    kind: Literal["chat", "raw", "ids"]


class Sampling(Struct, frozen=True, omit_defaults=True):
    """temperature 0 is greedy; top_p 1 keeps the whole law."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class Header(Struct, frozen=True, omit_defaults=True):
    id: str
    date: str
    method: Card
    knobs: dict[str, KnobValue]
    target: Network
    drafter: Network | None
    device: str
    dtype: str
    threads: int
    versions: dict[str, str]
    prompt: Prompt
    sampling: Sampling
    budget: int
    stops: list[int]
    context_limit: int
    words: dict[int, Word]
    contended: bool = False
    schema: int = SCHEMA


class Trace(Struct):
    """A run in memory. `end` is None while it grows, or when the file broke off."""

    header: Header
    steps: list[Step] = []
    end: End | None = None


class _Line(Struct, frozen=True, omit_defaults=True):
    """A line of the file: exactly one of the three is there."""

    header: Header | None = None
    step: Step | None = None
    end: End | None = None


class _Schema(Struct, frozen=True):
    """As much of a header as every schema shares."""

    header: dict[str, object]


def tidy(x: float, digits: int = 5) -> float:
    """A probability or a time with `digits` significant digits: what a reader can use, at a third of the bytes."""
    return float(f"{x:.{digits}g}") if math.isfinite(x) else 0.0


def encode(part: Header | Step | End) -> bytes:
    """One part → its line, newline included."""
    if isinstance(part, Header):
        line = _Line(header=part)
    elif isinstance(part, Step):
        line = _Line(step=part)
    else:
        line = _Line(end=part)
    return msgspec.json.encode(line) + b"\n"


def decode_line(line: bytes) -> Header | Step | End:
    """A line → what was encoded; TraceError says what is wrong with it."""
    try:
        parsed = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        check_schema(line)
        raise TraceError(f"This is not a line of a DraftScope trace: {error}.", "line") from error
    part = parsed.header or parsed.step or parsed.end
    if part is None:
        raise TraceError("This is not a line of a DraftScope trace: it holds no header, step or end.", "line")
    if isinstance(part, Header):
        check_schema(line)
    if isinstance(part, Step):
        check_step(part)
    return part


def check_schema(line: bytes) -> None:
    """Tell a header of another schema, which may look like no header of ours at all, from a broken one."""
    try:
        found = msgspec.json.decode(line, type=_Schema).header["schema"]
    except (msgspec.DecodeError, KeyError):
        return
    if found != SCHEMA:
        message = f"This trace has schema {found} and this version reads {SCHEMA}: record it again."
        raise TraceError(message, "schema", {"schema": str(found)[:40], "ours": SCHEMA})


def check_step(step: Step) -> None:
    """Refuse a step no decode could have made, so that nothing downstream has to ask."""
    check_tree(step.draft)
    check_verdict(step.draft, step.verdict)
    tree, verdict = step.draft, step.verdict
    offered = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
    if not step.committed or step.committed != offered[: len(step.committed)]:
        raise TraceError("A step is broken: it commits other tokens than its path and bonus.", "step")
    if not set(step.beyond) <= set(step.committed):
        raise TraceError("A step is broken: it speaks of tokens it did not commit.", "step")


def check_tree(tree: DraftTree) -> None:
    n = len(tree.tokens)
    shapes = {n, len(tree.parents), len(tree.passes), len(tree.probs), len(tree.beam)}
    if len(shapes) != 1 or n == 0 or tree.parents[0] != -1:
        raise TraceError("A step's tree is broken: its lists differ in length or it has no root.", "step")
    if any(not 0 <= p < i for i, p in enumerate(tree.parents) if i):
        raise TraceError("A step's tree is broken: a parent does not come before its child.", "step")
    kept = set(tree.kept)
    if 0 not in kept or not kept <= set(range(n)) or any(tree.parents[k] not in kept for k in kept - {0}):
        raise TraceError("A step's tree is broken: a kept node's parent was not kept.", "step")
    if tree.kept != sorted(kept) or any(not 0 <= lost.node < n for lost in tree.others):
        raise TraceError("A step's tree is broken: a node is listed twice, out of order, or is not there.", "step")


def check_verdict(tree: DraftTree, verdict: Verdict) -> None:
    kept, path = set(tree.kept), verdict.path
    asked = {one.node for one in (*verdict.wanted, *verdict.decisions, *verdict.laws)}
    if not {*path, *asked} <= kept or len(verdict.p) != len(tree.kept):
        raise TraceError("A step's verdict is broken: it speaks of nodes that were not kept.", "step")
    if path[:1] != [0] or any(tree.parents[b] != a for a, b in zip(path, path[1:], strict=False)):
        raise TraceError("A step's verdict is broken: its path does not lead down from the root.", "step")


def grown(trace: Trace | None, part: Header | Step | End) -> Trace:
    """`trace` with one more part; a second header corrects the first."""
    if isinstance(part, Header):
        return Trace(part, trace.steps if trace else [], trace.end if trace else None)
    if trace is None:
        raise TraceError("This file does not start with a trace header.", "start")
    if isinstance(part, Step):
        trace.steps.append(part)
    else:
        trace.end = part
    return trace


def read(lines: Iterable[bytes]) -> Trace:
    """Lines → Trace. A last line that broke off is left out, so a run that died can still be looked at."""
    trace: Trace | None = None
    for line in lines:
        if not line.endswith(b"\n"):
            break
        trace = grown(trace, decode_line(line))
    if trace is None:
        raise TraceError("This file holds no trace: its first line is missing or broken.", "start")
    return trace


def load(path: Path | str) -> Trace:
    """Read a trace file, plain or gzipped."""
    path = Path(path)
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path.name} cannot be read: {error}.", "packed") from error
    return read(raw.splitlines(keepends=True))


def save(trace: Trace, path: Path | str) -> None:
    """Write a trace file; the same trace gives the same bytes."""
    path = Path(path)
    parts = [trace.header, *trace.steps, *([trace.end] if trace.end else [])]
    raw = b"".join(encode(part) for part in parts)
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


# Statistics: derived here, once, from steps; nothing in the loop counts.


class DepthCount(Struct, frozen=True, omit_defaults=True):
    """How often a guess at `depth` was put to the target after all before it held, and how often it held too."""

    depth: int
    tested: int
    accepted: int


class Difference(Struct, frozen=True, omit_defaults=True):
    """The first place where two greedy runs part, and plain decoding's own top-2 logit gap there."""

    position: int
    gap: float


def depths(tree: DraftTree) -> list[int]:
    """Levels below the root, per node."""
    out = [0] * len(tree.tokens)
    for i, parent in enumerate(tree.parents[1:], 1):
        out[i] = out[parent] + 1
    return out


def ids(trace: Trace) -> list[int]:
    return [token for step in trace.steps for token in step.committed]


def words(trace: Trace) -> dict[int, Word]:
    """Text of every id the trace names, by id."""
    found = dict(trace.header.words)
    for step in trace.steps:
        found |= step.words
    return found


def text_of(tokens: Sequence[int], known: dict[int, Word]) -> str:
    """Ids → text, joined as bytes first: a character may be spread over several tokens."""
    parts = [known.get(token, f"<{token}>") for token in tokens]
    raw = b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in parts)
    return raw.decode(errors="replace")


def text(trace: Trace) -> str:
    return text_of(ids(trace), words(trace))


def tau(trace: Trace) -> float:
    """Mean tokens committed per step, the target's own included; the prefill is no step of drafting. 0 if none ran."""
    sizes = [len(step.committed) for step in trace.steps[1:]]
    return sum(sizes) / len(sizes) if sizes else 0.0


def mean_tau(traces: Iterable[Trace]) -> float:
    """τ over several prompts; one answered by its first token took no step, and has none. 0 if no prompt took one."""
    found = [tau(trace) for trace in traces if len(trace.steps) > 1]
    return sum(found) / len(found) if found else 0.0


def accepted(step: Step) -> int:
    """Drafted tokens of this step that entered the text."""
    return min(len(step.verdict.path) - 1, len(step.committed))


def offered(step: Step) -> int:
    """Drafted tokens that a verdict came to: those it took, and one more if guesses hung below the last of them."""
    done, draft = accepted(step), step.draft
    if len(step.committed) <= done:
        return done  # a stop or the budget came first
    return done + any(draft.parents[node] == step.verdict.path[done] for node in draft.kept)


def accepted_by_depth(traces: Iterable[Trace], dead_ends: bool = False) -> list[DepthCount]:
    """P(depth d accepted | depth d - 1 accepted) as counts; tokens behind a stop or the budget are not counted.

    A branch that a tree grew no deeper was not asked. With `dead_ends` it counts as refused as long as the tree has
    that depth elsewhere: the product of those rates is then the chance to come so deep at all.
    """
    tested: dict[int, int] = {}
    held: dict[int, int] = {}
    for step in (step for trace in traces for step in trace.steps[1:]):
        done, reached = accepted(step), offered(step)
        if dead_ends and reached == done < len(step.committed):
            levels = depths(step.draft)
            reached = min(done + 1, max(levels[node] for node in step.draft.kept))
        for depth in range(1, reached + 1):
            tested[depth] = tested.get(depth, 0) + 1
            held[depth] = held.get(depth, 0) + (depth <= done)
    return [DepthCount(d, tested[d], held[d]) for d in sorted(tested)]


def decode_ms(trace: Trace) -> float:
    """Milliseconds of the decode steps, prefill and recording left out."""
    return sum(step.ms for step in trace.steps[1:])


def tokens_per_second(trace: Trace) -> float:
    """Decode speed: tokens of the steps after the prefill per second of those steps. 0 if none ran."""
    ms = decode_ms(trace)
    return 1000 * sum(len(s.committed) for s in trace.steps[1:]) / ms if ms else 0.0


def rows(trace: Trace) -> int:
    """Most rows the target was ever asked to score in one decode step; 1 where nothing was drafted."""
    return max((len(step.draft.kept) for step in trace.steps[1:]), default=1)


def exact(dtype: str) -> bool:
    """Whether it is float32, however weights are read: then greedy texts must be plain decoding's."""
    return dtype.startswith("float32")


def same_question(a: Trace, b: Trace) -> bool:
    """Only runs of one target on one device, asked the same, are measured against each other."""
    return question(a) == question(b)


def question(trace: Trace) -> list[object]:
    head = trace.header
    return [head.prompt.ids, head.sampling, head.target.hash, head.device, head.dtype]


def baseline(traces: Sequence[Trace], trace: Trace) -> Trace | None:
    """The run among `traces` of a method that drafts nothing, on the same question.

    A drafter that never found anything to draft has knobs all the same.
    """
    plain = (t for t in traces if not t.header.knobs and rows(t) == 1 and len(t.steps) > 1)
    return next((t for t in plain if same_question(t, trace)), None)


def comparable(*traces: Trace) -> bool:
    """Their times may be set against each other: nothing else had the device while one of them was measured."""
    return not any(trace.header.contended for trace in traces)


def time_split(traces: Iterable[Trace]) -> dict[PassKind, float]:
    """Milliseconds per kind of pass over all decode steps; `record` is no part of any speed."""
    split: dict[PassKind, float] = {}
    for item in (p for trace in traces for step in trace.steps[1:] for p in step.passes):
        split[item.kind] = split.get(item.kind, 0.0) + item.ms
    return split


def top_gap(wanted: Wanted) -> float:
    """Logit gap between the target's first and second choice: log p1 - log p2."""
    first, second = (wanted.probs + [0.0, 0.0])[:2]
    return math.log(first / second) if second > 0 else math.inf


def difference(trace: Trace, plain: Trace) -> Difference | None:
    """Where `trace` first departs from plain decoding of the same prompt, or None where the ids are equal."""
    ours, theirs = ids(trace), ids(plain)
    if ours == theirs:
        return None
    both = zip(ours, theirs, strict=False)
    position = next((i for i, (a, b) in enumerate(both) if a != b), min(len(ours), len(theirs)))
    if position >= len(plain.steps):
        return Difference(position, math.inf)
    return Difference(position, top_gap(plain.steps[position].verdict.wanted[0]))
