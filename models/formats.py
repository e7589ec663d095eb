"""Published drafter layouts → our networks: SafeAILab, SpecForge, speculators (EAGLE, EAGLE-3) and z-lab (DFlash).

Reading is strict: a file that does not fit is refused with the reason, because a drafter that loads wrongly still
decodes losslessly and only looks bad.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from models.decoder import ConfigError, DecoderConfig, need, read_rope
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

# Fields of DFlash variants whose effect we do not have.
DFLASH_EXTRAS = (
    "use_swa",
    "attention_sink_bias",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
    "conv_kernel_size",
    "sample_from_anchor",
)

Tensors = dict[str, Tensor]


class FormatError(ConfigError):
    """A drafter that cannot be used with this target; the message says why and what to do."""


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise FormatError(
            f"{path.parent.name} has no {path.name}: point at a folder with config and weights"
        ) from error
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: download it again ({error})") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, or its pytorch_model.bin."""
    shards = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not shards:
        raise FormatError(f"{folder.name} holds no *.safetensors and no pytorch_model.bin: download the weights")
    return shards


def read_tensors(folder: Path) -> Tensors:
    found: Tensors = {}
    for path in weight_files(folder):
        try:
            if path.suffix == ".safetensors":
                found |= load_file(path)
            else:
                found |= torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # safetensors, pickle and zip each raise their own
            raise FormatError(f"{path.name} cannot be read: download it again ({error})") from error
    return found


def fingerprint(folder: Path) -> str:
    """A short hash of what a folder holds: its config and, per weight file, the size and the first and last 64 kB."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weight_files(folder):
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(f"{path.name} {size}".encode() + file.read(65536))
            file.seek(max(0, size - 65536))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """speculators nests the layer's fields in `transformer_layer_config`; everyone else is flat."""
    flat = dict(config)
    return dict(flat.pop("transformer_layer_config", {})) | flat


def strip(tensors: Tensors) -> Tensors:
    """Names without the wrappers' prefix and without rotary buffers."""
    short = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in short.items() if "rotary_emb" not in name}


def kind_of(config: Mapping[str, Any], tensors: Tensors) -> str:
    """eagle, eagle3 or dflash, told by the tensors where they are clear and by the config where they are not."""
    if "dflash_config" in config or ("hidden_norm.weight" in tensors and "fc.weight" in tensors):
        return "dflash"
    if config.get("speculators_model_type") == "eagle3" or "norm.weight" in tensors:
        return "eagle3"
    if "fc.weight" in tensors:
        return "eagle"
    raise FormatError("these weights are no EAGLE, EAGLE-3 or DFlash drafter: they have no fc.weight")


def attention_of(config: Mapping[str, Any], tensors: Tensors, prefix: str, width: int, qk_norm: bool) -> AttentionShape:
    """Sizes of the attention under `prefix`; head_dim is taken from the weights and compared with the config."""
    config = dict(config)
    heads = need(config, "num_attention_heads")
    head_dim = tensors[f"{prefix}.q_proj.weight"].shape[0] // heads
    stated = config.get("head_dim")
    if stated and stated != head_dim:
        raise FormatError(
            f"config.json says head_dim {stated} and the weights have {head_dim}: they do not belong together"
        )
    return AttentionShape(
        input=width,
        hidden=need(config, "hidden_size"),
        heads=heads,
        kv_heads=tensors[f"{prefix}.k_proj.weight"].shape[0] // head_dim,
        head_dim=head_dim,
        eps=need(config, "rms_norm_eps"),
        qkv_bias=f"{prefix}.q_proj.bias" in tensors,
        o_bias=f"{prefix}.o_proj.bias" in tensors,
        qk_norm=qk_norm,
    )


def rope_config(config: Mapping[str, Any], shape: AttentionShape) -> dict[str, Any]:
    return dict(config) | {"head_dim": shape.head_dim}


def eagle_config(config: Mapping[str, Any], tensors: Tensors, target: DecoderConfig) -> EagleConfig:
    hidden = need(dict(config), "hidden_size")
    shape = attention_of(config, tensors, "layers.0.self_attn", hidden, qk_norm=False)
    return EagleConfig(
        hidden=hidden,
        ffn=need(dict(config), "intermediate_size"),
        attention=shape,
        rope=read_rope(rope_config(config, shape), EAGLE_THETA),
        bias=bool(config.get("bias", True)),
        feature_layers=(target.layers,),
    )


def fused_layers(config: Mapping[str, Any], target: DecoderConfig) -> tuple[int, ...]:
    """hidden_states indices of the fused features. Ids that start with 1 mean "output of layer", one less."""
    stated = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    stated = stated or config.get("eagle_aux_hidden_state_layer_ids")
    count = target.layers
    if not stated:
        if count < 7:
            raise FormatError(f"EAGLE-3 takes features 2, L/2 and L - 3, and this target has only {count} layers")
        return (2, count // 2, count - 3)
    return tuple(i + 1 for i in stated) if stated[0] == 1 else tuple(stated)


def eagle3_config(config: Mapping[str, Any], tensors: Tensors, target: DecoderConfig) -> Eagle3Config:
    hidden = need(dict(config), "hidden_size")
    prefix = "midlayer.self_attn"
    shape = attention_of(config, tensors, prefix, 2 * hidden, f"{prefix}.q_norm.weight" in tensors)
    vocab = config.get("vocab_size") or target.vocab
    return Eagle3Config(
        hidden=hidden,
        target_hidden=config.get("target_hidden_size") or hidden,
        ffn=tensors["midlayer.mlp.gate_proj.weight"].shape[0],
        attention=shape,
        rope=read_rope(rope_config(config, shape), EAGLE_THETA),
        vocab=vocab,
        draft_vocab=config.get("draft_vocab_size") or vocab,
        feature_layers=fused_layers(config, target),
        fc_bias="fc.bias" in tensors,
        norm_before_residual=bool(config.get("norm_before_residual")),
        # a flag without its weights is caught by the strict load, as weights without their flag are used
        norm_before_fc=bool(config.get("norm_before_fc")) or "input_norm.weight" in tensors,
        fc_norm=bool(config.get("fc_norm")) or "fc_norm.0.weight" in tensors,
        norm_output=bool(config.get("norm_output")),
    )


def extra(config: Mapping[str, Any], name: str) -> Any:
    """A DFlash field: in `dflash_config` in newer files, at the top level in older ones; both must agree."""
    inner = (config.get("dflash_config") or {}).get(name)
    outer = config.get(name)
    if inner is not None and outer is not None and inner != outer:
        raise FormatError(f"config.json names {name} twice, as {outer} and {inner}: delete the wrong one")
    return outer if inner is None else inner


def tapped_layers(config: Mapping[str, Any], target: DecoderConfig) -> tuple[int, ...]:
    """Published layer ids: stated, or evenly spaced from 1 to L - 3, one per draft layer.

    speculators counts the layers that have run, one more than the id of the last of them.
    """
    stated = extra(config, "target_layer_ids")
    if counted := extra(config, "aux_hidden_state_layer_ids"):
        stated = [i - 1 for i in counted]
    count, depth = need(dict(config), "num_hidden_layers"), target.layers
    if stated is None:
        if count == 1:
            return (depth // 2,)
        return tuple(round(1 + i * (depth - 4) / (count - 1)) for i in range(count))
    if len(set(stated)) != len(stated) or any(not 0 <= i < depth for i in stated):
        raise FormatError(f"target_layer_ids {stated} must be different layers from 0 to {depth - 1} of the target")
    return tuple(stated)


def block_causality(config: Mapping[str, Any], layer_types: list[str]) -> tuple[bool, ...]:
    """`is_causal`, else `dflash_config.causal`, speaks for all layers; else sliding layers are causal in the block."""
    stated = config.get("is_causal")
    if stated is None:
        stated = (config.get("dflash_config") or {}).get("causal")
    if stated is not None:
        return (bool(stated),) * len(layer_types)
    return tuple(kind == "sliding_attention" for kind in layer_types)


def layer_windows(config: Mapping[str, Any], kinds: list[str]) -> tuple[int, ...]:
    """The sliding window of every layer, 0 where it sees everything."""
    window = int(config.get("sliding_window") or 0)
    if "sliding_attention" in kinds and not window:
        raise FormatError("config.json has sliding layers and no sliding_window: take the file that belongs to them")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def check_plain(config: Mapping[str, Any]) -> None:
    """Refuse DFlash's later relatives: they load, and would draft as something they are not."""
    for name in DFLASH_EXTRAS:
        if extra(config, name):
            raise FormatError(f"config.json asks for {name}, which this program does not run")
    if extra(config, "projector_type") not in (None, "dflash"):
        raise FormatError(f"projector_type {extra(config, 'projector_type')!r} is not supported, only 'dflash'")


def slots(config: Mapping[str, Any], target: DecoderConfig) -> tuple[int, int]:
    """Block size and mask token."""
    mask, block = extra(config, "mask_token_id"), extra(config, "block_size")
    if mask is None or not 0 <= mask < target.vocab:
        raise FormatError(f"mask_token_id {mask} is no row of the target's embedding (0 to {target.vocab - 1})")
    if block is None or block < 2:
        raise FormatError("config.json has no block_size of at least 2: take the file that belongs to the weights")
    return block, mask


def dflash_config(config: Mapping[str, Any], tensors: Tensors, target: DecoderConfig) -> DFlashConfig:
    flat = dict(config)
    check_plain(flat)
    hidden, layers = need(flat, "hidden_size"), need(flat, "num_hidden_layers")
    shape = attention_of(flat, tensors, "layers.0.self_attn", hidden, qk_norm=True)
    block, mask = slots(flat, target)
    kinds = config.get("layer_types") or ["full_attention"] * layers
    if len(kinds) != layers:
        raise FormatError(
            f"config.json names {len(kinds)} layer_types for {layers} layers: they do not belong together"
        )
    return DFlashConfig(
        hidden=hidden,
        ffn=need(flat, "intermediate_size"),
        layers=layers,
        attention=shape,
        rope=read_rope(rope_config(flat, shape)),
        block_size=block,
        mask_token=mask,
        feature_layers=tuple(i + 1 for i in tapped_layers(config, target)),
        windows=layer_windows(flat, kinds),
        causal=block_causality(config, kinds),
    )


def check_vocab_map(network: Eagle3Head) -> None:
    """d2t must be offsets of an ascending choice of target ids; the all-zero table of a failed export is refused."""
    config = network.config
    mapped = torch.arange(config.draft_vocab) + network.d2t.cpu()
    whole = config.draft_vocab == config.vocab
    if not whole and (bool((mapped.diff() <= 0).any()) or int(mapped[-1]) >= config.vocab):
        raise FormatError(
            "d2t does not map draft ids to ascending target ids: the file is damaged or of another format"
        )
    if not whole and not bool(network.d2t.any()):
        raise FormatError("d2t is all zero although the draft vocabulary is smaller: the export lost the table")
    if bool(network.t2d.any()) and not torch.equal(network.t2d.cpu().nonzero().flatten(), mapped):
        raise FormatError("d2t and t2d name different tokens: the file is damaged")


def rename_eagle3(tensors: Tensors) -> Tensors:
    """speculators calls the one layer layers.0; SafeAILab and SpecForge call it midlayer."""
    return {name.replace("layers.0.", "midlayer.", 1): tensor for name, tensor in tensors.items()}


def blank(sizes: EagleConfig | Eagle3Config | DFlashConfig) -> DrafterNetwork:
    """A network of those sizes without weights: they come from a file."""
    with torch.device("meta"):
        if isinstance(sizes, EagleConfig):
            return EagleHead(sizes)
        return Eagle3Head(sizes) if isinstance(sizes, Eagle3Config) else DFlashHead(sizes)


def parse(config: Mapping[str, Any], tensors: Tensors, target: DecoderConfig) -> DrafterNetwork:
    """Config and tensors of any supported layout → a network with these weights, in the file's dtype, on CPU.

    Raises FormatError where sizes or names do not fit the file's own config or the target.
    """
    config, tensors = flatten(config), strip(tensors)
    kind = kind_of(config, tensors)
    tensors.pop("embed_tokens.weight", None)  # the target's own rows are the same ones
    if kind == "eagle3":
        tensors = rename_eagle3(tensors)
    if any(name.startswith("layers.1.") for name in tensors) and kind != "dflash":
        raise FormatError("this head has more than one layer, and only the published one-layer heads are supported")
    try:
        readers = {"eagle": eagle_config, "eagle3": eagle3_config, "dflash": dflash_config}
        sizes = readers[kind](config, tensors, target)
    except KeyError as error:
        raise FormatError(f"the weights of this {kind} drafter lack {error}: the file is not complete") from error
    check_target(config, sizes, target)
    return fill(blank(sizes), tensors)


def check_target(
    config: Mapping[str, Any], sizes: EagleConfig | Eagle3Config | DFlashConfig, target: DecoderConfig
) -> None:
    """A drafter made for another target decodes correctly and guesses nonsense, so sizes must agree to the letter."""
    wanted = sizes.target_hidden if isinstance(sizes, Eagle3Config) else sizes.hidden
    if wanted != target.hidden:
        raise FormatError(f"this drafter wants a target of hidden size {wanted} and this one has {target.hidden}")
    if sizes.hidden != target.hidden:
        raise FormatError(
            "drafters with a hidden size of their own are not supported: their embedding is not the target's"
        )
    vocab = config.get("vocab_size") or target.vocab
    if vocab != target.vocab:
        raise FormatError(f"this drafter wants a target of {vocab} token ids and this one has {target.vocab}")
    taken, top = sizes.feature_layers, target.layers
    if len(set(taken)) != len(taken) or not 0 <= min(taken) <= max(taken) <= top:
        raise FormatError(f"this drafter reads layers {list(taken)}: they must differ and lie within 0 to {top}")


def complete_vocab_map(config: Eagle3Config, tensors: Tensors) -> None:
    """Add the tables a head may omit: both where it knows every token, t2d where d2t already says it."""
    if config.draft_vocab == config.vocab:
        tensors.setdefault("d2t", torch.zeros(config.draft_vocab, dtype=torch.long))
    if "d2t" in tensors and tensors["d2t"].shape == (config.draft_vocab,):
        known = torch.zeros(config.vocab, dtype=torch.bool)
        known[(torch.arange(config.draft_vocab) + tensors["d2t"]).clamp(0, len(known) - 1)] = True
        tensors.setdefault("t2d", known)


def fill(network: DrafterNetwork, tensors: Tensors) -> DrafterNetwork:
    """Assign weights; every name and shape must match."""
    if isinstance(network, Eagle3Head):
        complete_vocab_map(network.config, tensors)
    try:
        missing, unexpected = network.load_state_dict(tensors, strict=False, assign=True)
    except RuntimeError as error:
        raise FormatError(f"weights and config do not fit: {' '.join(str(error).split())}") from error
    if missing or unexpected:
        raise FormatError(f"weights and config do not fit: missing {missing}, not known {unexpected}")
    if isinstance(network, Eagle3Head):
        check_vocab_map(network)
    return network.eval().requires_grad_(False)


def load(folder: Path, target: DecoderConfig) -> DrafterNetwork:
    """Read a drafter folder for `target`; raises FormatError with the reason."""
    return parse(read_json(folder / "config.json"), read_tensors(folder), target)
