"""From names to a run: a header first, then steps, then an end. Everything that runs a decode runs it through here."""

import datetime
import platform
import resource
import sys
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import msgspec
import torch
from torch import nn

from models.layers import bytes_a_weight
from models.load import Model, Network, load_network
from spec_core.contract import Clock, Method
from spec_core.decode import Plan, decode, named
from spec_core.stopwatch import stopwatch
from spec_core.target import CachedTarget
from spec_core.trace import (
    End,
    EndReason,
    Header,
    KnobValue,
    Prompt,
    Refusal,
    Sampling,
    Step,
    Trace,
)
from spec_core.trace import Network as NetworkCard

Part = Header | Step | End


class RequestError(Refusal):
    """A run that cannot start; the message says what to change."""


COLDEST = 1e-3  # the lowest temperature that is not greedy


@dataclass(frozen=True)
class Request:
    """One run: what to decode, how, and how much. `limit` 0 means the target's own context."""

    method: Method
    prompt: Prompt
    knobs: Mapping[str, KnobValue]
    sampling: Sampling = Sampling()
    budget: int = 128
    limit: int = 0


def chat_prompt(model: Model, text: str) -> Prompt:
    """A user's text in the target's chat template; RequestError for an empty one."""
    if not text.strip():
        raise RequestError("The prompt is empty: type a question or a task.", "empty")
    if model.tokenizer is None:
        raise RequestError("This target has no tokenizer: give a prompt as token ids.", "tokenizer")
    return Prompt(text, model.tokenizer.chat(text), "chat")


def raw_prompt(model: Model, text: str) -> Prompt:
    """Text to be continued as it stands. Drafters were trained on chat, so expect fewer accepted guesses."""
    if not text:
        raise RequestError("The prompt is empty: type the beginning of a text.")
    if model.tokenizer is None:
        raise RequestError("This target has no tokenizer: give a prompt as token ids.", "tokenizer")
    return Prompt(text, model.tokenizer.whole(text), "raw")


def network_for(model: Model, method: Method) -> Network | None:
    """The drafter network `method` needs with this target, loaded; None where it needs none."""
    if not method.network:
        return None
    source = model.drafters.get(method.network)
    if source is None:
        raise RequestError(f"No {method.title} drafter is known for {model.id}: choose another method or target.")
    return load_network(model, source)


def plan(model: Model, request: Request) -> Plan:
    """The request checked against the model's limits."""
    ids, most = request.prompt.ids, model.decoder.config.max_positions
    limit = min(request.limit or most, most)
    vocab = model.decoder.config.vocab
    if not ids:
        raise RequestError("The prompt is empty: type a question or a task.", "empty")
    check_length(ids, limit)
    if not 0 <= min(ids) <= max(ids) < vocab:
        raise RequestError(f"The prompt holds a token the target does not know: ids run from 0 to {vocab - 1}.")
    if request.budget < 1:
        raise RequestError("Ask for at least one new token.")
    check_sampling(request.sampling)
    return Plan(ids, request.budget, limit, model.stops, request.sampling)


def check_sampling(sampling: Sampling) -> None:
    """Logits divided by less than `COLDEST` leave what numbers can hold."""
    warm = COLDEST <= sampling.temperature < float("inf")
    if not (sampling.temperature == 0 or warm) or not 0 < sampling.top_p <= 1:
        raise RequestError(f"temperature must be 0 or from {COLDEST} on, and top-p above 0 and at most 1.")


def check_length(ids: list[int], limit: int) -> None:
    if len(ids) >= limit:
        message = f"The prompt has {len(ids)} tokens and the context holds {limit}: shorten it."
        raise RequestError(message, "long", {"tokens": len(ids), "limit": limit})


def check_kind(method: Method, network: Network | None) -> None:
    """Refuse weights of another kind: they may run, and would be shown under a name that is not theirs."""
    have = network.kind if network else ""
    if have != method.network:
        wanted = f"needs {method.network} weights" if method.network else "takes no drafter"
        raise RequestError(
            f"{method.title} {wanted}, and was given {have or 'none'}.", "weights", {"have": have or "–"}
        )


def as_trained(method: Method, network: Network | None) -> dict[str, KnobValue]:
    """The knobs that weights prescribe: a block of another length than they were made for is filled differently."""
    block = network.block if network else 0
    return {"block": block} if block and any(knob.name == "block" for knob in method.knobs) else {}


def run(
    model: Model, network: Network | None, request: Request, cancelled: Callable[[], bool] = lambda: False
) -> Generator[Part, None, None]:
    """Decode, and yield the parts of the trace as they come to be. RequestError and KnobError come before the first.

    `cancelled` is asked before every step; a run that is called off still ends with its End.
    """
    todo = plan(model, request)
    check_kind(request.method, network)
    knobs = request.method.settle(request.knobs)
    drafter = request.method.build(model, network, knobs, request.sampling)
    target = CachedTarget(model, drafter.layers, min(todo.limit, len(todo.prompt) + todo.budget))
    head = header(model, network, request, knobs, todo)
    yield head
    totals = Totals()
    steps = decode(target, drafter, todo, Clock(stopwatch(model.device)))
    reason = yield from totals.follow(steps, annotate(model, network, set(head.words)), cancelled)
    yield End(reason, totals.steps, totals.tokens, round(totals.ms, 3), peak_memory_mb(model))


@dataclass
class Totals:
    steps: int = 0
    tokens: int = 0
    ms: float = 0.0

    def follow(
        self,
        steps: Generator[Step, None, EndReason],
        annotated: Callable[[Step], Step],
        cancelled: Callable[[], bool],
    ) -> Generator[Step, None, EndReason]:
        """Pass steps on, annotated, until they end by themselves or the run is called off."""
        while not cancelled():
            try:
                step = next(steps)
            except StopIteration as stop:
                return stop.value
            self.steps, self.tokens, self.ms = self.steps + 1, self.tokens + len(step.committed), self.ms + step.ms
            yield annotated(step)
        return "cancelled"


def annotate(model: Model, network: Network | None, seen: set[int]) -> Callable[[Step], Step]:
    """Adds to a step the text of its new ids, and which tokens the drafter has no word for. `seen` grows."""
    word = model.tokenizer.word if model.tokenizer else None
    guessable = network.words if network else None

    def annotated(step: Step) -> Step:
        beyond = [] if guessable is None else [token for token in step.committed if token not in guessable]
        return msgspec.structs.replace(step, words=named(step, word, seen) if word else {}, beyond=beyond)

    return annotated


def header(model: Model, network: Network | None, request: Request, knobs: dict[str, KnobValue], todo: Plan) -> Header:
    """Everything a reader of the trace may ask about how it came to be."""
    word = model.tokenizer.word if model.tokenizer else None
    return Header(
        id=uuid.uuid4().hex[:12],
        date=datetime.date.today().isoformat(),
        method=request.method.card,
        knobs=knobs,
        target=target_card(model),
        drafter=drafter_card(model, network) if network else None,
        device=model.device_name,
        dtype=model.number_type,
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version(), "torch": str(torch.__version__)},
        prompt=request.prompt,
        sampling=request.sampling,
        budget=request.budget,
        stops=sorted(todo.stops),
        context_limit=todo.limit,
        words={token: word(token) for token in sorted(set(todo.prompt))} if word else {},
    )


def target_card(model: Model) -> NetworkCard:
    c = model.decoder.config
    layer, bytes_each = sum(p.numel() for p in model.decoder.model.layers[0].parameters()), bytes_read(model.decoder)
    sizes = (c.layers, c.hidden, c.vocab, layer, c.hidden * c.vocab)
    return NetworkCard(model.id, model.hash, *sizes, bytes_each=bytes_each)


def drafter_card(model: Model, network: Network) -> NetworkCard:
    config, own = network.module.config, network.head_rows
    vocab = own or model.decoder.config.vocab
    weights = (network.layer_weights, config.hidden * vocab)
    taps = list(config.feature_layers)
    own_bytes = bytes_read(network.module)
    return NetworkCard(
        network.id, network.hash, network.layers, config.hidden, vocab, *weights, taps, bool(own), own_bytes
    )


def bytes_read(module: nn.Module) -> float:
    return round(bytes_a_weight(module), 3)


def peak_memory_mb(model: Model) -> float:
    """The most memory this process has used so far: the GPU's on CUDA, else the resident set."""
    if model.device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(model.device) / 2**20, 1)
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def collect(parts: Generator[Part, None, None]) -> Trace:
    """All parts of a run as one trace in memory."""
    first = next(parts)
    assert isinstance(first, Header)
    trace = Trace(first, [])
    for part in parts:
        if isinstance(part, Step):
            trace.steps.append(part)
        elif isinstance(part, End):
            trace.end = part
    return trace
