"""Our target against transformers' own, same weights, same device: what one row, 16 rows and plain decoding cost.

Everything is measured in turns, so that a slow moment of the machine hits both sides, and medians are compared.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import nn
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from models import catalog
from models.load import Model, resolve
from spec_core.command import Ready, say
from spec_core.methods import yardstick
from spec_core.report import Ratio
from spec_core.run import RequestError
from spec_core.trace import Prompt, Sampling, tokens_per_second

CONTEXT, TOKENS = 128, 64
ROUNDS, LONG_ROUNDS = 30, 5
WARM_UP = 3  # rounds measured and thrown away

Work = Callable[[], None]


def reference(model: Model, name: str) -> PreTrainedModel:
    """transformers' model of the same weights; it is never to stop by itself."""
    folder = resolve(catalog.find(name).source)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=model.decoder.dtype)
    nn.Module.to(theirs, model.device)
    theirs.eval().generation_config.eos_token_id = None
    return theirs


def context(model: Model, texts: Sequence[str]) -> list[int]:
    """The first tokens of the prompts, one behind the other."""
    if model.tokenizer is None:
        raise RequestError("This target has no tokenizer: the ratios need text.")
    tokens = model.tokenizer.raw("\n".join(texts) + "\n")
    return (tokens * (CONTEXT // len(tokens) + 1))[:CONTEXT]


def their_rows(theirs: PreTrainedModel, tokens: list[int]) -> Work:
    """Their cached pass over one row behind `tokens`. The cache's argument is named by version: 5.24 renamed it."""
    cache, ids = DynamicCache(), torch.tensor([tokens], device=theirs.device)
    name = "cache" if "cache" in inspect.signature(theirs.forward).parameters else "past_key_values"
    theirs(ids, use_cache=True, **{name: cache})

    def work() -> None:
        theirs(ids[:, -1:], use_cache=True, **{name: cache})
        cache.crop(-1)

    return work


def our_rows(model: Model, tokens: list[int], rows: int) -> Work:
    """Our cached pass over `rows` rows behind `tokens`, LM head included."""
    decoder, start = model.decoder, len(tokens)
    cache = decoder.new_cache(start + rows)
    ids = torch.tensor([tokens], device=model.device)
    places = torch.arange(start + rows, device=model.device)[None]
    decoder(ids, places[:, :start], cache)

    def work() -> None:
        decoder.lm_head(decoder(ids[:, -rows:], places[:, start:], cache).last[0])
        cache.crop(start)

    return work


def interleaved(model: Model, works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Median milliseconds of each piece of work, done in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(WARM_UP + rounds):
        for name, work in works.items():
            times[name].append(timed(model, work))
    return {name: median(found[WARM_UP:]) for name, found in times.items()}


def timed(model: Model, work: Work) -> float:
    model.wait()
    begin = time.perf_counter()
    work()
    model.wait()
    return 1000 * (time.perf_counter() - begin)


def plain_speed(model: Model, tokens: list[int]) -> float:
    """Our plain decoding, tokens per second without the prompt and without recording."""
    endless = replace(model, stops=frozenset())
    prompt = Prompt("", tokens, "ids")
    return tokens_per_second(Ready(yardstick(), None).decode(endless, prompt, {}, Sampling(), TOKENS))


def generate_speed(model: Model, theirs: PreTrainedModel, tokens: list[int]) -> float:
    """Theirs, alike: the time of the first token, which is the prompt's, is taken off."""
    ids = torch.tensor([tokens], device=theirs.device)

    def spend(count: int) -> float:
        mask = torch.ones_like(ids)
        settings = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        return timed(model, lambda: theirs.generate(ids, attention_mask=mask, **settings))  # type: ignore[operator]

    return 1000 * (TOKENS - 1) / (spend(TOKENS) - spend(1))


@torch.inference_mode()
def measure(model: Model, name: str, texts: Sequence[str]) -> dict[str, Ratio]:
    """The three ratios, each beside its bar."""
    say("measuring the target against transformers' own …")
    theirs, tokens = reference(model, name), context(model, texts)
    works = {
        "theirs": their_rows(theirs, tokens),
        "one": our_rows(model, tokens, 1),
        "many": our_rows(model, tokens, 16),
    }
    ms = interleaved(model, works, ROUNDS)
    pairs = [(plain_speed(model, tokens), generate_speed(model, theirs, tokens)) for _ in range(1 + LONG_ROUNDS)]
    faster = median(ours for ours, _ in pairs[1:]) / median(theirs for _, theirs in pairs[1:])
    return {
        "ours_1_row": Ratio(ms["one"] / ms["theirs"], 0.60, "lower"),
        "ours_16_rows": Ratio(ms["many"] / ms["theirs"], 1.1, "lower"),
        "plain_vs_generate": Ratio(faster, 1.6, "higher"),
    }
