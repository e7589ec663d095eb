"""The drafters' networks against a slow, naive reading of their papers, and their caches against no cache at all.

The naive side has no cache, no fused weights and no mask tensors: it loops over rows, heads and pairs.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.decoder import Layer
from models.heads import DFlashHead, Eagle3Head, EagleHead, new_cache
from models.layers import MLP, Attention, AttentionShape, RMSNorm, speed_up
from models.load import Model, Network, load_network, load_target
from spec_core import methods
from spec_core.contract import Clock
from spec_core.decode import Plan, decode
from spec_core.target import CachedTarget
from spec_core.trace import Sampling
from tests.toy import HIDDEN, THETA, random_network, toy_model

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


# The naive side.


def norm(x: Tensor, layer: RMSNorm) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + layer.eps) * layer.weight


def turned(x: Tensor, position: int) -> Tensor:
    """One head's vector, its halves turned against each other by position · θ^(-2i/d)."""
    out, half = x.clone(), len(x) // 2
    for i in range(half):
        angle = position * THETA ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def project(x: Tensor, layer: nn.Linear) -> Tensor:
    y = layer.weight @ x
    return y if layer.bias is None else y + layer.bias


def head_vector(x: Tensor, layer: nn.Linear, head: int, shape: AttentionShape, name: Any = None) -> Tensor:
    part = project(x, layer)[head * shape.head_dim : (head + 1) * shape.head_dim]
    return part if name is None else norm(part, name)


def attend(at: Attention, queries: list[Tensor], keys: list[Tensor], start: int, sees: Callable[[int, int], bool]):
    """Row `start + i` of the keys is query i. Returns attention's output per query."""
    shape, out = at.shape, []
    q_norm, k_norm = (getattr(at, name, None) for name in ("q_norm", "k_norm"))
    for i, x in enumerate(queries):
        heads = []
        for head in range(shape.heads):
            other = head // (shape.heads // shape.kv_heads)
            q = turned(head_vector(x, at.q_proj, head, shape, q_norm), start + i)
            seen = [j for j in range(len(keys)) if sees(start + i, j)]
            k = [turned(head_vector(keys[j], at.k_proj, other, shape, k_norm), j) for j in seen]
            v = [head_vector(keys[j], at.v_proj, other, shape) for j in seen]
            weight = torch.softmax(torch.stack([q @ one / math.sqrt(shape.head_dim) for one in k]), dim=0)
            heads.append(sum((w * one for w, one in zip(weight, v, strict=True)), torch.zeros(shape.head_dim)))
        out.append(project(torch.cat(heads), at.o_proj))
    return out


def gated(x: Tensor, mlp: MLP) -> Tensor:
    gate = project(x, mlp.gate_proj)
    return project(gate * torch.sigmoid(gate) * project(x, mlp.up_proj), mlp.down_proj)


def back(i: int, j: int) -> bool:
    return j <= i


def naive_eagle(head: EagleHead, embedded: Tensor, features: Tensor) -> Tensor:
    layer: Any = head.layers[0]
    rows = [project(torch.cat(pair), head.fc) for pair in zip(embedded, features, strict=True)]
    rows = [x + a for x, a in zip(rows, attend(layer.self_attn, rows, rows, 0, back), strict=True)]
    return torch.stack([x + gated(norm(x, layer.post_attention_layernorm), layer.mlp) for x in rows])


def naive_eagle3(head: Eagle3Head, embedded: Tensor, features: Tensor) -> Tensor:
    layer = head.midlayer
    fused = [project(row, head.fc) for row in features]
    pairs = [
        torch.cat([norm(e, layer.input_layernorm), norm(h, layer.hidden_norm)])
        for e, h in zip(embedded, fused, strict=True)
    ]
    rows = [h + a for h, a in zip(fused, attend(layer.self_attn, pairs, pairs, 0, back), strict=True)]
    return torch.stack([x + gated(norm(x, layer.post_attention_layernorm), layer.mlp) for x in rows])


def naive_dflash(head: DFlashHead, embedded: Tensor, features: Tensor) -> list[Tensor]:
    """Context: fc, then the norm, then straight into every layer's keys and values; only the block is normed there."""
    context = [norm(project(row, head.fc), head.hidden_norm) for row in features]
    block, outputs, n = list(embedded), [], len(features)
    for number, layer in enumerate(head.layers):
        assert isinstance(layer, Layer)
        window, causal = head.config.windows[number], head.config.causal[number]

        def sees(i: int, j: int, window: int = window, causal: bool = causal) -> bool:
            return (j <= i or not causal) and (not window or abs(i - j) < window)

        normed = [norm(x, layer.input_layernorm) for x in block]
        out = attend(layer.self_attn, normed, [*context, *normed], n, sees)
        block = [x + a for x, a in zip(block, out, strict=True)]
        block = [x + gated(norm(x, layer.post_attention_layernorm), layer.mlp) for x in block]
        outputs.append(torch.stack(block))
    return outputs


# Ours against it.


def shaken(kind: str, seed: int) -> Any:
    """A random network whose norms and biases are not neutral, packed as in a run."""
    module = random_network(kind, 64, seed)
    rng = torch.Generator().manual_seed(seed)
    for weight in (p for p in module.parameters() if p.dim() == 1):
        weight.copy_(weight + 0.4 * torch.randn(weight.shape, generator=rng))
    speed_up(module)
    return module.eval()


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("kind", "naive", "width"), [("eagle", naive_eagle, 1), ("eagle3", naive_eagle3, 3)])
def test_a_feature_head_is_the_naive_one(kind: str, naive: Callable[..., Tensor], width: int) -> None:
    head = shaken(kind, 5)
    embedded, features = noise(6, HIDDEN), noise(6, HIDDEN * width)
    want = naive(head, embedded, features)
    ours = head(embedded[None], head.fuse(features[None]), torch.arange(6)[None])[0]
    assert torch.allclose(ours, want, atol=1e-4)
    lm_head = toy_model().decoder.lm_head
    logits = want @ lm_head.weight.T if kind == "eagle" else norm(want, head.norm) @ head.lm_head.weight.T
    assert torch.allclose(head.logits(ours, lm_head), logits, atol=1e-4)
    assert torch.equal(head.feedback(ours), ours)  # fed back before any norm


BLOCKS = [((0, 0), (False, False)), ((0, 0), (True, False)), ((4, 0), (True, False)), ((3, 5), (False, True))]


@pytest.mark.parametrize(("windows", "causal"), BLOCKS)
def test_the_block_network_is_the_naive_one(windows: tuple[int, int], causal: tuple[bool, bool]) -> None:
    """D-T3, D-T11, D-T12: every layer's output, full and sliding, both ways and only back."""
    head = shaken("dflash", 6)
    head.config = replace(head.config, windows=windows, causal=causal)
    embedded, features = noise(4, HIDDEN), noise(7, 2 * HIDDEN)
    masks = head.masks(7, 11, torch.device("cpu"))
    ours = head(embedded[None], head.context(features[None]), torch.arange(11)[None], masks=masks)
    for one, want in zip(ours, naive_dflash(head, embedded, features), strict=True):
        assert torch.allclose(one[0], want, atol=1e-4)


def test_fewer_layers_are_the_first_ones() -> None:
    head = shaken("dflash", 6)
    given = (noise(1, 4, HIDDEN), head.context(noise(1, 7, 2 * HIDDEN)), torch.arange(11)[None])
    short, long = head(*given, depth=1), head(*given)
    assert (len(short), len(long)) == (1, 2)
    assert torch.equal(short[0], long[0])


@pytest.mark.parametrize(("causal", "reaches"), [(False, True), (True, False)])
def test_a_later_slot_reaches_an_earlier_one(causal: bool, reaches: bool) -> None:
    """D-T6: a full layer looks both ways inside the block."""
    head = shaken("dflash", 7)
    head.config = replace(head.config, causal=(causal, causal))
    embedded, context = noise(1, 4, HIDDEN), head.context(noise(1, 5, 2 * HIDDEN))
    masks = head.masks(5, 9, torch.device("cpu"))
    before = head(embedded, context, torch.arange(9)[None], masks=masks)[-1]
    embedded[0, 3] += 1
    after = head(embedded, context, torch.arange(9)[None], masks=masks)[-1]
    assert reaches == (not torch.allclose(before[0, 1], after[0, 1], atol=1e-6))


def test_d_t12_the_window_ends_where_it_says() -> None:
    """D-T12: W - 1 back is seen and W is not."""
    head = shaken("dflash", 7)
    head.config = replace(head.config, windows=(4, 0), causal=(True, False))
    sliding, full = head.masks(6, 9, torch.device("cpu"))
    assert full is None
    assert sliding is not None
    assert sliding[0].tolist() == [False] * 3 + [True] * 4 + [False] * 2
    assert sliding[2].tolist() == [False] * 5 + [True] * 4


# Caches over several rounds of a real decode, with drafters that were trained and so have guesses accepted.


def pair(target: str, drafter: str) -> tuple[Model, Network]:
    model = load_target(str(GOLDEN / target), "cpu")
    return model, load_network(model, str(GOLDEN / drafter))


def features_of(model: Model, network: Network, text: list[int]) -> Tensor:
    layers = network.module.config.feature_layers
    return CachedTarget(model, layers, len(text)).prefill(text, Clock()).features


def scratch(model: Model, network: Network, text: list[int]) -> tuple[Tensor, Tensor]:
    """Keys and values a drafter should hold when `text` is sure and its last token is the root: one pass over all."""
    head, features, n = network.module, features_of(model, network, text[:-1])[None], len(text) - 1
    embed = model.decoder.model.embed_tokens
    cache = new_cache(head, n + 1, embed.weight)
    if isinstance(head, DFlashHead):
        head(embed(torch.tensor([text[-1:]])), head.context(features), torch.arange(n + 1)[None], cache)
    else:
        head(embed(torch.tensor([text[1:]])), head.fuse(features), torch.arange(n)[None], cache)
    return cache.keys[:, :, :, :n], cache.values[:, :, :, :n]


@pytest.mark.parametrize(
    ("method", "target", "drafter", "knobs"),
    [
        ("eagle", "target_llama", "eagle2/draft", {}),
        ("eagle2", "target_llama", "eagle2/draft", {"tokens": 40, "depth": 4}),
        ("eagle3", "target_llama", "eagle3/draft", {"tokens": 30, "depth": 5, "top_k": 6}),
        ("dflash", "dflash_qwen3/target", "dflash_qwen3/draft", {"block": 8}),
    ],
)
def test_the_cache_of_many_rounds_is_one_pass_from_scratch(
    method: str, target: str, drafter: str, knobs: dict[str, Any]
) -> None:
    """E-B5, B6, B7, B14, B22 and D-T18: true features only, row 0 is (f_0, t_1), no gap, no guess left."""
    model, network = pair(target, drafter)
    recipe, prompt = methods.find(method), [1, 6, 17, 42, 99]
    one: Any = recipe.build(model, network, recipe.settle(knobs), Sampling())
    plan = Plan(prompt, 24, 512)
    text, siblings, rounds = list(prompt), 0, 0
    for step in decode(CachedTarget(model, one.layers, 64), one, plan, Clock()):
        if step.passes and len(text) > len(prompt):
            keys, values = scratch(model, network, text)
            assert one.cache.length == len(text) - 1
            assert torch.allclose(one.cache.keys[:, :, :, : len(text) - 1], keys, atol=1e-4)
            assert torch.allclose(one.cache.values[:, :, :, : len(text) - 1], values, atol=1e-4)
            rounds += 1
            siblings += step.verdict.path != list(range(len(step.verdict.path)))
        text += step.committed
    assert rounds >= 3
    assert len(text) - len(prompt) > rounds + 4  # guesses were accepted
    assert (siblings > 0) == (method != "dflash")  # and scattered ones, where there is a tree


def test_the_root_is_what_a_block_starts_from() -> None:
    """D-T1: slot 0 is the root's embedding, and another root makes another draft."""
    model, network = pair("dflash_qwen3/target", "dflash_qwen3/draft")
    recipe, drafts, seen = methods.find("dflash"), [], []
    hook = model.decoder.model.embed_tokens.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    for root in (23, 144):
        one = recipe.build(model, network, recipe.settle({"block": 8}), Sampling())
        one.observe([1, 6], features_of(model, network, [1, 6]), Clock())
        seen.clear()
        drafts.append(one.propose(root, torch.Generator(), Clock()).tree.tokens)
        assert seen[0].tolist() == [[root] + [319] * 7]
    hook.remove()
    assert drafts[0][1:] != drafts[1][1:]
