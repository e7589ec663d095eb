"""`python -m spec_core.check NAME`: does this target with its drafters fit this machine, and do they work here?

Facts first, from the catalog; then the weights are fetched where the hub can be reached; then every method decodes
three prompts, which must give plain decoding's text, and its guesses are held against the published ones.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from models import catalog, found
from models.catalog import Offer, Pair
from models.decoder import ConfigError
from models.load import Model, load_target, pick_device, pick_dtype, resolve
from models.memory import ROOM, copies, free_bytes
from spec_core.command import Parser, Ready, get_ready, guarded
from spec_core.methods import discover, yardstick
from spec_core.report import tie
from spec_core.run import RequestError, chat_prompt, peak_memory_mb
from spec_core.trace import Prompt, Sampling, Trace, accepted_by_depth, difference, mean_tau, tokens_per_second

TOKENS = 32
QUESTIONS = (
    "Count from one to ten.",
    "Write a Python function that adds two numbers.",
    "Why is the sky blue? Answer in two sentences.",
)
SHOWN = 5  # slots whose acceptance is printed
FAR = 0.25  # so far below the published share, slot 1 is no matter of prompts
FEW = 20  # guesses that say nothing yet


# Facts.


def gigabytes(numbers: float, device: torch.device, dtype: torch.dtype) -> float:
    """Memory of so many million weights."""
    return numbers * 1e6 * dtype.itemsize * copies(device, dtype) / 1e9


def fact(offer: Offer) -> str:
    tau_said = f"; tau upstream {offer.tau}" if offer.tau else ""
    return f"  {offer.kind}: {offer.source}, layout {offer.layout}, {offer.numbers:.0f} million weights{tau_said}"


def needed(pair: Pair, device: torch.device, dtype: torch.dtype) -> float:
    """GB of the target and one drafter of each kind."""
    first = {offer.kind: offer.numbers for offer in reversed(pair.offers)}
    return gigabytes(pair.numbers + sum(first.values()), device, dtype)


def fits(pair: Pair, device: torch.device, dtype: str) -> bool:
    """Print what the catalog knows of a pair, and whether there is room for it."""
    print(f"{pair.title} ({pair.hub or pair.source}), {pair.numbers:.0f} million weights")
    for offer in pair.offers:
        print(fact(offer))
    kind, have = pick_dtype(device, dtype), ROOM * free_bytes(device) / 1e9
    if device.type == "cpu" and dtype == "auto" and needed(pair, device, kind) > have:
        kind = torch.bfloat16  # too big for fp32, it runs as it is stored
    need, name = needed(pair, device, kind), str(kind).removeprefix("torch.")
    print(f"memory: {need:.1f} GB needed in {name} with one drafter of each kind, {have:.1f} GB can be used here")
    return need <= have


def fetch(pair: Pair) -> None:
    """Bring everything of a pair here; the hub's client shows how far it is."""
    for source in (pair.source, *pair.drafters.values()):
        resolve(source)


# Trying.


def decodes(model: Model, one: Ready, prompts: Sequence[Prompt], tokens: int) -> list[Trace]:
    return [one.decode(model, prompt, one.published, Sampling(), tokens) for prompt in prompts]


def departures(traces: Sequence[Trace], plain: Sequence[Trace]) -> tuple[bool, str]:
    """Whether every text is plain decoding's, near-ties excepted, and how to say it."""
    allowed = tie(plain[0].header.dtype)
    away = [found_one for pair in zip(traces, plain, strict=True) if (found_one := difference(*pair))]
    if worst := max(away, key=lambda one: one.gap, default=None):
        where = f"token {worst.position}, gap {worst.gap:.2g}"
        if worst.gap > allowed:
            return False, f"fails: its text leaves plain decoding's at {where}"
        return True, f"works: near-tie at {where}, else the same text as plain decoding"
    return True, "works: same text as plain decoding"


def wiring(traces: Sequence[Trace], offer: Offer | None) -> tuple[bool, str]:
    """Share of guesses that held, slot by slot, beside the published one."""
    counts = accepted_by_depth(traces)[:SHOWN]
    if not counts:
        return True, ""
    said = "slots hold " + " ".join(f"{one.accepted / one.tested:.2f}" for one in counts)
    curve = dict(offer.curve) if offer else {}
    if 1 not in curve:
        return True, said
    said += ", published " + " ".join(f"{k}: {share:.2f}" for k, share in curve.items())
    first = counts[0]
    if first.tested >= FEW and first.accepted / first.tested < curve[1] - FAR:
        return False, said + "; slot 1 is far below it: something is wired wrong, or the prompts' template is"
    return True, said


def verdict(model: Model, one: Ready, prompts: Sequence[Prompt], plain: Sequence[Trace]) -> tuple[bool, str]:
    """Whether a method works here, in one line."""
    try:
        traces = decodes(model, one, prompts, plain[0].header.budget)
    except (ConfigError, RequestError, TypeError, RuntimeError) as error:
        return False, f"fails: {' '.join(str(error).split())}"
    same, text = departures(traces, plain)
    well, slots = wiring(traces, catalog.offer_of(one.network.id) if one.network else None)
    mean = mean_tau(traces)
    speed = sum(map(tokens_per_second, traces)) / len(traces)
    return same and well, f"{text}, tau {mean:.2f}, {speed:.1f} tokens/s" + (f"; {slots}" if slots else "")


def survey(model: Model, tokens: int) -> bool:
    """Print a line per method; whether all that this pair should have work."""
    prompts = [chat_prompt(model, question) for question in QUESTIONS]
    ready, missing = get_ready(model, list(discover().values()))
    plain = decodes(model, Ready(yardstick(), None), prompts, tokens)
    good = True
    for one in ready:
        fine, message = verdict(model, one, prompts, plain)
        good &= fine
        weights = f" [{one.network.id}]" if one.network else ""
        print(f"{one.method.key}{weights} {message}", flush=True)
    for key, reason in missing.items():
        promised = discover()[key].network in model.drafters
        good &= not promised
        print(f"{key} {'fails' if promised else 'is not part of this pair'}: {reason}; nothing runs in its place")
    return good


# The command.


def brought(sources: Sequence[str]) -> dict[str, str]:
    """Drafters of the user's own, by kind, each with what was found in it."""
    kinds: dict[str, str] = {}
    for source in sources:
        seen = found.look(resolve(source))
        print("\n  ".join([f"{source}:", *seen.lines]))
        kinds[seen.kind] = source
    return kinds


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m spec_core.check", description="Does this pair fit and work here?")
    keys = ", ".join(pair.key for pair in catalog.PAIRS)
    parser.add_argument("name", nargs="?", default="smollm2-135m", help=f"{keys}; or an id, or a folder")
    parser.add_argument(
        "--drafter", action="append", default=[], metavar="FOLDER", help="a drafter of your own, or an id"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="fp32, bf16, fp16, stored, fewbits, or auto")
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"decoded per prompt (default {TOKENS})")
    parser.add_argument("--facts", action="store_true", help="say what is known and whether it fits, and stop there")
    args = parser.parse_args(argv)
    pair, device = catalog.find(args.name), pick_device(args.device)
    room = fits(pair, device, args.dtype) if pair.numbers else True
    if args.facts or not room:
        print("it fits" if room else "it does not fit: choose a smaller target, or a machine with more memory")
        return 0 if room else 1
    fetch(pair)
    model = load_target(args.name, args.device, args.dtype)
    model = replace(model, drafters=model.drafters | brought(args.drafter))
    print(f"{model.id} on {model.device_name}, {model.number_type}, {torch.get_num_threads()} threads", flush=True)
    good = survey(model, args.tokens)
    print(f"memory: {peak_memory_mb(model):.0f} MB at most")
    return 0 if good else 1


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
