"""Published drafter layouts → our networks: SafeAILab, SpecForge, AngelSlim, speculators and z-lab.

What a folder is, its tensors say, not its name. Reading is strict: every tensor is used or named in an error, and what
does not fit is refused with both sides named, because a drafter that loads wrongly still decodes losslessly and only
looks bad.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.decoder import (
    DecoderConfig,
    eps_of,
    read_rope,
    table,
    whole,
)
from models.files import FormatError, Tensors, check_finite, check_types, read_json, read_tensors
from models.heads import (
    DFlashConfig,
    DFlashHead,
    DrafterNetwork,
    Eagle3Config,
    Eagle3Head,
    EagleConfig,
    EagleHead,
)
from models.layers import AttentionShape

EAGLE_THETA = 10000.0  # the published heads were trained without a rope_theta in their config
EMBEDDING, LM_HEAD = "embed_tokens.weight", "lm_head.weight"

# Fields of DFlash variants whose effect we do not have.
DFLASH_EXTRAS = (
    "use_swa",
    "attention_sink_bias",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
    "conv_kernel_size",
    "selector_rank",
    "sample_from_anchor",
    "shift_label",
)

MOST_SLOTS = 256  # of a block

Config = Mapping[str, Any]
Sizes = EagleConfig | Eagle3Config | DFlashConfig


def flatten(config: Config) -> dict[str, Any]:
    """speculators nests the layer's fields in `transformer_layer_config`; everyone else is flat."""
    flat = {name: value for name, value in config.items() if name != "transformer_layer_config"}
    return dict(table(dict(config), "transformer_layer_config")) | flat


def strip(tensors: Tensors) -> Tensors:
    """Names without the wrappers' prefix and without rotary buffers."""
    short = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    if len(short) < len(tensors):
        raise FormatError("some weights are there twice, with and without the prefix 'model.': remove one set")
    return {name: tensor for name, tensor in short.items() if "rotary_emb" not in name}


def claimed(config: Config) -> str:
    """What the config says this is; empty where it does not say."""
    stated = config.get("speculators_model_type")
    if stated and stated not in ("eagle3", "dflash"):
        raise FormatError(f"speculators_model_type {stated!r} is not supported, only 'eagle3' and 'dflash'")
    names = str(config.get("architectures")).lower()
    if stated == "dflash" or "dflash_config" in config or "dflash" in names:
        return "dflash"
    return "eagle3" if stated or "eagle3" in names or config.get("draft_vocab_size") else ""


def shown(tensors: Tensors) -> str:
    """What the tensors say this is; empty where they could be either."""
    if "layers.0.hidden_norm.weight" in tensors or any(name.startswith("midlayer.") for name in tensors):
        return "eagle3"
    return "dflash" if "hidden_norm.weight" in tensors else ""


def kind_of(config: Config, tensors: Tensors) -> str:
    """eagle, eagle3 or dflash. Tensors decide; a config that says otherwise belongs to other weights."""
    said, seen = claimed(config), shown(tensors)
    if said and seen and said != seen:
        raise FormatError(
            f"config.json describes a drafter of kind {said}, the weights are of kind {seen}: find its own"
        )
    if "fc.weight" not in tensors:
        raise FormatError("these weights are no EAGLE, EAGLE-3 or DFlash drafter: they have no fc.weight")
    return seen or said or "eagle"


def layout_of(config: Config, kind: str) -> str:
    """Whose layout a folder is in, in words."""
    names = str(config.get("architectures"))
    if config.get("speculators_model_type"):
        return "speculators"
    if kind == "dflash":
        return "z-lab or SpecForge"
    if kind == "eagle3" and "LlamaForCausalLMEagle3" in names:
        return "SpecForge"
    return "AngelSlim" if kind == "eagle3" and "Eagle3LlamaForCausalLM" in names else "SafeAILab"


# Sizes, told by the config and by the weights, and compared.


def matrix(tensors: Tensors, name: str) -> tuple[int, int]:
    """Rows and columns of a weight."""
    shape = tensors[name].shape
    if len(shape) != 2 or 0 in shape:
        raise FormatError(f"{name} has shape {list(shape)}: a matrix belongs there, the file is damaged")
    return shape[0], shape[1]


def divided(rows: int, by: int, what: str) -> int:
    if rows < by or rows % by:
        raise FormatError(
            f"{what} has {rows} rows, which are no multiple of {by}: config.json belongs to other weights"
        )
    return rows // by


def attention_of(config: Config, tensors: Tensors, prefix: str, width: int, qk_norm: bool) -> AttentionShape:
    """Sizes of the attention under `prefix`; head_dim is taken from the weights and compared with the config."""
    flat = dict(config)
    heads = whole(flat, "num_attention_heads")
    head_dim = divided(matrix(tensors, f"{prefix}.q_proj.weight")[0], heads, "q_proj")
    kv_heads = divided(matrix(tensors, f"{prefix}.k_proj.weight")[0], head_dim, "k_proj")
    for name, found in (("head_dim", head_dim), ("num_key_value_heads", kv_heads)):
        if config.get(name) and config[name] != found:
            raise FormatError(
                f"config.json says {name} {config[name]} and the weights have {found}: they do not belong together"
            )
    if heads % kv_heads or head_dim % 2:
        raise FormatError(f"{heads} heads of {head_dim} over {kv_heads} key heads: the file is damaged")
    return AttentionShape(
        input=width,
        hidden=whole(flat, "hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=eps_of(flat),
        qkv_bias=f"{prefix}.q_proj.bias" in tensors,
        o_bias=f"{prefix}.o_proj.bias" in tensors,
        qk_norm=qk_norm,
    )


def check_fc(tensors: Tensors, features: int, width: int, what: str) -> None:
    """fc reads so many features of that width."""
    columns = matrix(tensors, "fc.weight")[1]
    if columns != features * width:
        raise FormatError(f"fc.weight reads {columns} numbers, and {what} are {features} × {width}: they do not fit")


def rope_config(config: Config, shape: AttentionShape) -> dict[str, Any]:
    return dict(config) | {"head_dim": shape.head_dim}


def words_of(config: Config, target: DecoderConfig) -> int:
    return whole(dict(config), "vocab_size") if config.get("vocab_size") else target.vocab


def own_rows(tensors: Tensors, config: Config, target: DecoderConfig) -> int:
    """Rows of an embedding in the file, 0 without one. It has a row for each of the target's tokens."""
    if EMBEDDING not in tensors:
        return 0
    rows, vocab = matrix(tensors, EMBEDDING)[0], words_of(config, target)
    if rows != vocab:
        raise FormatError(f"the file's embedding has {rows} rows and its vocabulary {vocab} tokens: they do not fit")
    return rows


def head_rows(tensors: Tensors, config: Config, fallback: int) -> int:
    """Words of the drafter's own LM head: its rows, which the config must confirm."""
    stated = whole(dict(config), "draft_vocab_size") if config.get("draft_vocab_size") else 0
    rows = matrix(tensors, LM_HEAD)[0] if LM_HEAD in tensors else stated or fallback
    if stated and stated != rows:
        raise FormatError(f"config.json says draft_vocab_size {stated} and lm_head has {rows} rows: they do not fit")
    return rows


# One reader per kind.


def eagle_config(config: Config, tensors: Tensors, target: DecoderConfig) -> EagleConfig:
    hidden = whole(dict(config), "hidden_size")
    shape = attention_of(config, tensors, "layers.0.self_attn", hidden, qk_norm=False)
    check_fc(tensors, 2, hidden, "embedding and feature")
    return EagleConfig(
        hidden=hidden,
        ffn=whole(dict(config), "intermediate_size"),
        attention=shape,
        rope=read_rope(rope_config(config, shape), EAGLE_THETA),
        bias=bool(config.get("bias", True)),
        feature_layers=(target.layers,),
        own_embedding=own_rows(tensors, config, target),
    )


def layer_ids(stated: Any, name: str) -> list[int]:
    if not isinstance(stated, list) or not stated or any(type(i) is not int for i in stated):
        raise FormatError(f"config.json says {name} {stated!r}: it must be a list of layer numbers")
    return stated


def fused_layers(config: Config, target: DecoderConfig) -> tuple[int, ...]:
    """hidden_states indices of the fused features. Ids that start with 1 mean "output of layer", one less."""
    name, count = "eagle_aux_hidden_state_layer_ids", target.layers
    stated = table(dict(config), "eagle_config").get(name) or config.get(name)
    if not stated:
        if count < 7:
            raise FormatError(f"EAGLE-3 takes features 2, L/2 and L - 3, and this target has only {count} layers")
        return (2, count // 2, count - 3)
    ids = layer_ids(stated, name)
    return tuple(i + 1 for i in ids) if ids[0] == 1 else tuple(ids)


def head_window(config: Config) -> int:
    """How far an EAGLE-3 head looks back; 0 = all the way."""
    kinds = config.get("layer_types")
    slides = kinds == ["sliding_attention"] if kinds else bool(config.get("use_sliding_window"))
    return whole(dict(config), "sliding_window") if slides else 0


def eagle3_config(config: Config, tensors: Tensors, target: DecoderConfig) -> Eagle3Config:
    flat = dict(config)
    hidden, prefix = whole(flat, "hidden_size"), "midlayer.self_attn"
    feature = whole(flat, "target_hidden_size") if config.get("target_hidden_size") else hidden
    shape = attention_of(config, tensors, prefix, 2 * hidden, f"{prefix}.q_norm.weight" in tensors)
    taken, vocab = fused_layers(config, target), words_of(config, target)
    check_fc(tensors, len(taken), feature, f"the features of layers {list(taken)}")
    return Eagle3Config(
        hidden=hidden,
        target_hidden=feature,
        ffn=matrix(tensors, "midlayer.mlp.gate_proj.weight")[0],
        attention=shape,
        rope=read_rope(rope_config(config, shape), EAGLE_THETA),
        vocab=vocab,
        draft_vocab=head_rows(tensors, config, vocab),
        feature_layers=taken,
        fc_bias="fc.bias" in tensors,
        norm_before_residual=bool(config.get("norm_before_residual")),
        # a flag without its weights is caught by the strict load, as weights without their flag are used
        norm_before_fc=bool(config.get("norm_before_fc")) or "input_norm.weight" in tensors,
        fc_norm=bool(config.get("fc_norm")) or "fc_norm.0.weight" in tensors,
        norm_output=bool(config.get("norm_output")),
        window=head_window(config),
        own_embedding=own_rows(tensors, config, target),
    )


def extra(config: Config, name: str) -> Any:
    """A DFlash field: in `dflash_config` in newer files, at the top level in older ones; both must agree."""
    inner = table(dict(config), "dflash_config").get(name)
    outer = config.get(name)
    if inner is not None and outer is not None and inner != outer:
        raise FormatError(f"config.json names {name} twice, as {outer} and {inner}: delete the wrong one")
    return outer if inner is None else inner


def tapped_layers(config: Config, target: DecoderConfig) -> tuple[int, ...]:
    """Published layer ids: stated, or evenly spaced from 1 to L - 3, one per draft layer.

    speculators counts the layers that have run, one more than the id of the last of them.
    """
    stated, name = extra(config, "target_layer_ids"), "target_layer_ids"
    if counted := extra(config, "aux_hidden_state_layer_ids"):
        name = "aux_hidden_state_layer_ids"
        stated = [i - 1 for i in layer_ids(counted, name)]
    count, depth = whole(dict(config), "num_hidden_layers"), target.layers
    if stated is None:
        if count == 1:
            return (depth // 2,)
        return tuple(round(1 + i * (depth - 4) / (count - 1)) for i in range(count))
    ids = layer_ids(stated, name)
    if len(set(ids)) != len(ids) or any(not 0 <= i < depth for i in ids):
        raise FormatError(f"target_layer_ids {ids} must be different layers from 0 to {depth - 1} of the target")
    return tuple(ids)


def block_causality(config: Config, layer_types: list[str]) -> tuple[bool, ...]:
    """`is_causal`, else `dflash_config.causal`, speaks for all layers; else sliding layers are causal in the block,
    unless speculators' `sliding_window_non_causal` says they are not."""
    stated = config.get("is_causal")
    if stated is None:
        stated = table(dict(config), "dflash_config").get("causal")
    if stated is None and config.get("sliding_window_non_causal"):
        stated = False
    if stated is not None:
        return (bool(stated),) * len(layer_types)
    return tuple(kind == "sliding_attention" for kind in layer_types)


def layer_kinds(config: Config, layers: int) -> list[str]:
    kinds = config.get("layer_types") or ["full_attention"] * layers
    if not isinstance(kinds, list) or len(kinds) != layers:
        count = len(kinds) if isinstance(kinds, list) else repr(kinds)
        raise FormatError(f"config.json names {count} layer_types for {layers} layers: they do not belong together")
    if strange := [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]:
        raise FormatError(f"layer_types holds {strange[0]!r}, and only full and sliding attention are supported")
    return kinds


def layer_windows(config: Config, kinds: list[str]) -> tuple[int, ...]:
    """The sliding window of every layer, 0 where it sees everything."""
    if "sliding_attention" not in kinds:
        return (0,) * len(kinds)
    if not config.get("sliding_window"):
        raise FormatError("config.json has sliding layers and no sliding_window: take the file that belongs to them")
    window = whole(dict(config), "sliding_window")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def check_plain(config: Config) -> None:
    """Refuse DFlash's later relatives: they load, and would draft as something they are not."""
    for name in DFLASH_EXTRAS:
        if extra(config, name):
            raise FormatError(f"config.json asks for {name}, which this program does not run")
    if extra(config, "projector_type") not in (None, "dflash"):
        raise FormatError(f"projector_type {extra(config, 'projector_type')!r} is not supported, only 'dflash'")


def slots(config: Config, target: DecoderConfig) -> tuple[int, int]:
    """Block size and mask token."""
    mask, block = extra(config, "mask_token_id"), extra(config, "block_size")
    if type(mask) is not int or not 0 <= mask < target.vocab:
        raise FormatError(f"mask_token_id {mask} is no row of the target's embedding (0 to {target.vocab - 1})")
    if type(block) is not int or not 2 <= block <= MOST_SLOTS:
        raise FormatError(f"config.json has no block_size of at least 2 (and at most {MOST_SLOTS}): it says {block}")
    return block, mask


def dflash_config(config: Config, tensors: Tensors, target: DecoderConfig) -> DFlashConfig:
    flat = dict(config)
    check_plain(flat)
    hidden, layers = whole(flat, "hidden_size"), whole(flat, "num_hidden_layers")
    shape = attention_of(flat, tensors, "layers.0.self_attn", hidden, qk_norm=True)
    (block, mask), kinds, taps = slots(flat, target), layer_kinds(flat, layers), tapped_layers(config, target)
    check_fc(tensors, len(taps), hidden, f"the features of layers {list(taps)}")
    return DFlashConfig(
        hidden=hidden,
        ffn=whole(flat, "intermediate_size"),
        layers=layers,
        attention=shape,
        rope=read_rope(rope_config(flat, shape)),
        block_size=block,
        mask_token=mask,
        feature_layers=tuple(i + 1 for i in taps),
        windows=layer_windows(config, kinds),
        causal=block_causality(config, kinds),
        draft_vocab=head_rows(tensors, config, 0) if LM_HEAD in tensors else 0,
        own_embedding=own_rows(tensors, config, target),
    )


READERS = {"eagle": eagle_config, "eagle3": eagle3_config, "dflash": dflash_config}


# The drafter and the target.


def trained_for(what: str, drafter: Any, target: Any) -> FormatError:
    return FormatError(
        f"this drafter was trained for {what} {drafter}, the target has {target}: use the pair it was made for"
    )


def check_widths(config: Config, kind: str, target: DecoderConfig) -> None:
    """The first thing to ask: do the drafter and the target speak of the same rows?"""
    flat = dict(config)
    name = "target_hidden_size" if kind == "eagle3" and config.get("target_hidden_size") else "hidden_size"
    if (wanted := whole(flat, name)) != target.hidden:
        raise trained_for("hidden size", wanted, target.hidden)
    if (vocab := words_of(config, target)) != target.vocab:
        raise trained_for("a vocabulary of", vocab, target.vocab)


def check_target(config: Config, sizes: Sizes, target: DecoderConfig) -> None:
    """A drafter made for another target decodes correctly and guesses nonsense, so all that can be compared is."""
    if sizes.hidden != target.hidden and not sizes.own_embedding:
        raise FormatError(
            f"this drafter has hidden size {sizes.hidden} and the target {target.hidden}, so it needs an embedding of "
            "its own, and the file has none"
        )
    depth = config.get("num_target_layers")
    if depth and isinstance(sizes, DFlashConfig) and depth != target.layers:
        raise trained_for("a number of layers of", depth, target.layers)
    taken, top = sizes.feature_layers, target.layers
    if len(set(taken)) != len(taken) or not 0 <= min(taken) <= max(taken) <= top:
        raise FormatError(f"this drafter reads layers {list(taken)}: they must differ and lie within 0 to {top}")


def check_shared(config: Config, tensors: Tensors, kind: str) -> None:
    """What no published drafter of these kinds is."""
    if config.get("hidden_act", "silu") != "silu":
        raise FormatError(f"hidden_act {config['hidden_act']!r} is not supported, only silu")
    if any(name.startswith("layers.1.") for name in tensors) and kind != "dflash":
        raise FormatError("this head has more than one layer, and only the published one-layer heads are supported")
    if kind == "eagle" and head_window(config):
        raise FormatError("an EAGLE head with a sliding window is not supported: no published one has it")


# The vocabulary map.


def check_map(d2t: Tensor, t2d: Tensor | None, vocab: int) -> None:
    """d2t must be offsets of an ascending choice of target ids; the all-zero table of a failed export is refused."""
    mapped = torch.arange(len(d2t)) + d2t
    if not bool(d2t.any()) and len(d2t) < vocab:
        raise FormatError("d2t is all zero although the draft vocabulary is smaller: the export lost the table")
    if bool((mapped.diff() <= 0).any()) or int(mapped[0]) < 0 or int(mapped[-1]) >= vocab:
        raise FormatError(
            "d2t does not map draft ids to ascending target ids: the file is damaged or of another format"
        )
    if t2d is not None and not torch.equal(t2d.nonzero().flatten(), mapped):
        raise FormatError("d2t and t2d name different tokens: the file is damaged")


def take_map(tensors: Tensors, words: int, vocab: int) -> tuple[Tensor, Tensor]:
    """d2t and t2d of a head of `words` words, checked. Both may be absent where it knows every token, t2d always."""
    known, d2t = tensors.pop("t2d", None), tensors.pop("d2t", None)
    if d2t is None and words != vocab:
        raise FormatError(
            f"the head has {words} words of {vocab} and the weights are missing ['d2t'], which names them"
        )
    d2t = torch.zeros(words, dtype=torch.long) if d2t is None else d2t
    if d2t.shape != (words,) or d2t.dtype not in (torch.int64, torch.int32):
        raise FormatError(
            f"d2t is {list(d2t.shape)} of {d2t.dtype}: weights and config do not fit, {words} ids belong there"
        )
    if known is not None and (known.shape != (vocab,) or known.dtype not in (torch.bool, torch.uint8)):
        raise FormatError(
            f"t2d is {list(known.shape)} of {known.dtype}: weights and config do not fit, {vocab} marks belong there"
        )
    check_map(d2t, known, vocab)
    marks = torch.zeros(vocab, dtype=torch.bool)
    marks[torch.arange(words) + d2t] = True
    return d2t.long(), marks


def rename_eagle3(tensors: Tensors) -> Tensors:
    """speculators calls the one layer layers.0; SafeAILab and SpecForge call it midlayer."""
    return {name.replace("layers.0.", "midlayer.", 1): tensor for name, tensor in tensors.items()}


# Putting it together.


def blank(sizes: Sizes) -> DrafterNetwork:
    """A network of those sizes without weights: they come from a file."""
    with torch.device("meta"):
        if isinstance(sizes, EagleConfig):
            return EagleHead(sizes)
        return Eagle3Head(sizes) if isinstance(sizes, Eagle3Config) else DFlashHead(sizes)


def parse(config: Config, tensors: Tensors, target: DecoderConfig) -> DrafterNetwork:
    """Config and tensors of any supported layout → a network with these weights, in the file's dtype, on CPU.

    Raises FormatError where sizes or names do not fit the file's own config or the target.
    """
    config, tensors = flatten(config), strip(tensors)
    kind = kind_of(config, tensors)
    if kind == "eagle3":
        tensors = rename_eagle3(tensors)
    check_shared(config, tensors, kind)
    check_widths(config, kind, target)
    try:
        sizes = READERS[kind](config, tensors, target)
    except KeyError as error:
        raise FormatError(f"the weights of this {kind} drafter lack {error}: the file is not complete") from error
    check_target(config, sizes, target)
    check_types(tensors)
    network = fill(blank(sizes), tensors, target.vocab)
    check_finite(network.named_parameters())
    return network


def add_map(network: DrafterNetwork, tensors: Tensors, vocab: int) -> None:
    """The vocabulary map where the network has a head of its own; a DFlash drafter needs d2t alone."""
    if isinstance(network, EagleHead) or not network.config.draft_vocab:
        return
    tensors["d2t"], known = take_map(tensors, network.config.draft_vocab, vocab)
    if isinstance(network, Eagle3Head):
        tensors["t2d"] = known


def some(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    return str(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def check_names(wanted: Tensors, tensors: Tensors) -> None:
    """Every name and shape must match: a weight left out or left over belongs to another network."""
    missing, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or unknown:
        raise FormatError(f"weights and config do not fit: missing {some(missing)}, not known {some(unknown)}")
    for name, tensor in wanted.items():
        if tensor.shape != tensors[name].shape:
            raise FormatError(
                f"weights and config do not fit: size mismatch for {name}, {list(tensors[name].shape)} in the file and "
                f"{list(tensor.shape)} by the config"
            )


def fill(network: DrafterNetwork, tensors: Tensors, vocab: int) -> DrafterNetwork:
    """Give the network its weights."""
    add_map(network, tensors, vocab)
    check_names(network.state_dict(), tensors)
    network.load_state_dict(tensors, assign=True)
    return network.eval().requires_grad_(False)


def load(folder: Path, target: DecoderConfig) -> DrafterNetwork:
    """Read a drafter folder for `target`; raises FormatError with the reason."""
    return parse(read_json(folder / "config.json"), read_tensors(folder), target)
