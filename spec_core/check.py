"""`python -m spec_core.check`: does this target with its drafters fit and work on this device? One line per method."""

from collections.abc import Sequence

import torch

from models.decoder import ConfigError
from models.load import Model, load_target
from spec_core.command import Parser, Ready, get_ready, guarded
from spec_core.methods import discover, yardstick
from spec_core.report import NEAR_TIE
from spec_core.run import RequestError, chat_prompt, peak_memory_mb
from spec_core.trace import Prompt, Sampling, Trace, difference, tau, tokens_per_second

TOKENS = 8
QUESTION = "Count from one to ten."


def compare(model: Model, one: Ready, prompt: Prompt, plain: Trace) -> tuple[bool, str]:
    """Whether a few tokens of this method are plain decoding's, and what to say about it."""
    try:
        trace = one.decode(model, prompt, {}, Sampling(), TOKENS)
    except (ConfigError, RequestError, TypeError, RuntimeError) as error:
        return False, f"fails: {' '.join(str(error).split())}"
    away = difference(trace, plain)
    if away and away.gap > NEAR_TIE and trace.header.dtype == "float32":
        return False, f"fails: its text leaves plain decoding's at token {away.position}, gap {away.gap:.2g}"
    same = f"near-tie at token {away.position}, gap {away.gap:.2g}" if away else "same text as plain decoding"
    return True, f"works: {same}, tau {tau(trace):.2f}, {tokens_per_second(trace):.1f} tokens/s"


def survey(model: Model) -> bool:
    """Print a line per method; whether all that this pair should have work."""
    prompt = chat_prompt(model, QUESTION)
    ready, missing = get_ready(model, list(discover().values()))
    plain = Ready(yardstick(), None).decode(model, prompt, {}, Sampling(), TOKENS)
    good = True
    for one in ready:
        fine, message = compare(model, one, prompt, plain)
        good &= fine
        weights = f" [{one.network.id}]" if one.network else ""
        print(f"{one.method.key}{weights} {message}", flush=True)
    for key, reason in missing.items():
        promised = discover()[key].network in model.drafters
        good &= not promised
        print(f"{key} {'fails' if promised else 'is not part of this pair'}: {reason}")
    return good


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m spec_core.check", description="Does this pair fit and work here?")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(argv)
    model = load_target(args.target, args.device)
    dtype = str(model.decoder.dtype).removeprefix("torch.")
    print(f"{model.id} on {model.device_name}, {dtype}, {torch.get_num_threads()} threads", flush=True)
    good = survey(model)
    print(f"memory: {peak_memory_mb(model):.0f} MB at most")
    return 0 if good else 1


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
