"""Writes a drafter in a published layout, from whichever layout it is in: `python -m models.export FOLDER OUT`.

Weights pass through unchanged, bit for bit; names, config and tables are the layout's. Ours carry no copy of the
target's embedding: it is added where a layout has one.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from models import catalog, files, formats
from models.cards import model_card
from models.decoder import ConfigError, DecoderConfig, read_config
from models.fetch import FetchError, write_json
from models.heads import DFlashConfig, DFlashHead, DrafterNetwork, Eagle3Config, Eagle3Head, EagleConfig
from models.load import EMBEDDING, LoadError, resolve

Fields = dict[str, Any]
Tensors = dict[str, Tensor]
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True)
class Source:
    """A drafter that was read: its config file, its network, and the target it is for."""

    config: Fields
    network: DrafterNetwork
    target: DecoderConfig
    name: str  # the target's id

    @property
    def tensors(self) -> Tensors:
        """Under our names, which are SafeAILab's and z-lab's, without an embedding."""
        found = self.network.state_dict()
        return {name: tensor for name, tensor in found.items() if name != formats.EMBEDDING}


def layer_fields(source: Source) -> Fields:
    """What a plain Hugging Face config says about the drafter's layers."""
    sizes, was = source.network.config, formats.flatten(source.config)
    shape = sizes.attention
    return {
        "model_type": "qwen3" if shape.qk_norm else "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_hidden_layers": sizes.layers if isinstance(sizes, DFlashConfig) else 1,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        **rope_fields(was),
        "max_position_embeddings": was.get("max_position_embeddings") or source.target.max_positions,
        "vocab_size": source.target.vocab,
        "attention_bias": shape.qkv_bias,
        "tie_word_embeddings": False,
        "dtype": str(next(iter(source.network.parameters())).dtype).removeprefix("torch."),
    }


def rope_fields(config: Fields) -> Fields:
    """The rotary base, always written out, and its scaling as it was stated."""
    stated = {name: config[name] for name in ("rope_scaling", "rope_parameters") if config.get(name)}
    if "rope_parameters" in stated:
        return stated
    return {"rope_theta": config.get("rope_theta") or formats.EAGLE_THETA, "rope_scaling": None} | stated


def window_fields(sizes: Eagle3Config | DFlashConfig) -> Fields:
    windows = sizes.windows if isinstance(sizes, DFlashConfig) else (sizes.window,)
    if not any(windows):
        return {"layer_types": ["full_attention"] * len(windows)} if isinstance(sizes, DFlashConfig) else {}
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    return {"layer_types": kinds, "sliding_window": max(windows)}


def nested(source: Source, kind: str, fields: Fields) -> Fields:
    """speculators' config: the layer's fields in a group of their own, the target named."""
    sizes = source.network.config
    inner = layer_fields(source)
    if isinstance(sizes, Eagle3Config | DFlashConfig):
        inner |= window_fields(sizes)
    return {
        "architectures": [{"eagle3": "Eagle3DraftModel", "dflash": "DFlashDraftModel"}[kind]],
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": fields.get("block_size", 4) - 1}],
            "verifier": {"name_or_path": source.name},
        },
        "transformer_layer_config": inner,
        "tie_word_embeddings": False,
        "dtype": inner["dtype"],
    } | fields


# EAGLE-3. A config that states no layers means 2, L/2 and L - 3.


def eagle3_sizes(source: Source) -> Eagle3Config:
    sizes = source.network.config
    assert isinstance(sizes, Eagle3Config)
    return sizes


def eagle3_fields(source: Source, architecture: str) -> Fields:
    sizes = eagle3_sizes(source)
    flags = {name: True for name in FLAGS if getattr(sizes, name)}
    fields = layer_fields(source) | {"architectures": [architecture], "draft_vocab_size": sizes.draft_vocab}
    return fields | flags | window_fields(sizes)


def unstated(source: Source, architecture: str, fields: Fields) -> Fields:
    """A layout without a place for the layers: they must be the ones everybody assumes."""
    sizes, depth = eagle3_sizes(source), source.target.layers
    usual = (2, depth // 2, depth - 3)
    if sizes.feature_layers != usual:
        raise LoadError(
            f"this layout always reads layers {list(usual)}, and the drafter reads {list(sizes.feature_layers)}: "
            "choose specforge or speculators"
        )
    return eagle3_fields(source, architecture) | fields


def safeailab3(source: Source) -> Fields:
    return unstated(source, "LlamaForCausalLM", {})


def angelslim(source: Source) -> Fields:
    return unstated(source, "Eagle3LlamaForCausalLM", {"tie_word_embeddings": True})  # as published, though it is not


def specforge3(source: Source) -> Fields:
    """Ids that begin with 1 count the outputs of layers; others cannot be told apart that way and stay as they are."""
    taken = eagle3_sizes(source).feature_layers
    ids = [i - 1 for i in taken] if taken[0] == 2 else list(taken)
    return eagle3_fields(source, "LlamaForCausalLMEagle3") | {"eagle_config": {IDS: ids, "use_aux_hidden_state": True}}


IDS = "eagle_aux_hidden_state_layer_ids"


def speculators3(source: Source) -> Fields:
    sizes = eagle3_sizes(source)
    flags = {name: getattr(sizes, name) for name in FLAGS}
    return nested(source, "eagle3", {"draft_vocab_size": sizes.draft_vocab, IDS: list(sizes.feature_layers)} | flags)


def under_layers(tensors: Tensors) -> Tensors:
    return {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}


# EAGLE and DFlash.


def safeailab(source: Source) -> Fields:
    assert isinstance(source.network.config, EagleConfig)
    return layer_fields(source) | {"architectures": ["LlamaForCausalLM"], "bias": source.network.config.bias}


def dflash_sizes(source: Source) -> DFlashConfig:
    sizes = source.network.config
    assert isinstance(sizes, DFlashConfig)
    return sizes


def causal_fields(sizes: DFlashConfig) -> Fields:
    """What is_causal must say where the windows alone would say something else."""
    usual = tuple(bool(window) for window in sizes.windows)
    return {} if sizes.causal == usual else {"is_causal": sizes.causal[0]}


def zlab(source: Source) -> Fields:
    sizes = dflash_sizes(source)
    if sizes.draft_vocab:
        raise LoadError("the drafter has an LM head of its own, for which this layout has no place: choose speculators")
    inner = {"mask_token_id": sizes.mask_token, "target_layer_ids": [i - 1 for i in sizes.feature_layers]}
    fields = {"architectures": ["DFlashDraftModel"], "block_size": sizes.block_size, "dflash_config": inner}
    fields |= {"num_target_layers": source.target.layers}
    return layer_fields(source) | window_fields(sizes) | causal_fields(sizes) | fields


def specforge_dflash(source: Source) -> Fields:
    """As z-lab's, with the rotary base in both schemas."""
    fields = zlab(source)
    theta = fields.get("rope_theta")
    return fields | ({"rope_parameters": {"rope_type": "default", "rope_theta": theta}} if plain_rope(fields) else {})


def plain_rope(fields: Fields) -> bool:
    return "rope_theta" in fields and not fields.get("rope_scaling")


def speculators_dflash(source: Source) -> Fields:
    sizes = dflash_sizes(source)
    fields = {
        "aux_hidden_state_layer_ids": list(sizes.feature_layers),
        "block_size": sizes.block_size,
        "mask_token_id": sizes.mask_token,
        "draft_vocab_size": sizes.draft_vocab or source.target.vocab,
    }
    if any(sizes.windows) and not any(sizes.causal):
        return nested(source, "dflash", fields | {"sliding_window_non_causal": True})
    return nested(source, "dflash", fields | causal_fields(sizes))


# The table of layouts.


@dataclass(frozen=True)
class Layout:
    """How one project writes one kind: its config, its file, its names, and whether the embedding is in the file."""

    config: Callable[[Source], Fields]
    file: str = "model.safetensors"
    rename: Callable[[Tensors], Tensors] = dict
    embed: bool = False


BIN = "pytorch_model.bin"
LAYOUTS: dict[str, dict[str, Layout]] = {  # the first of a kind is what ours are in
    "eagle": {"safeailab": Layout(safeailab, embed=True), "safeailab-bin": Layout(safeailab, BIN, embed=True)},
    "eagle3": {
        "specforge": Layout(specforge3),
        "safeailab": Layout(safeailab3, BIN),
        "angelslim": Layout(angelslim),
        "speculators": Layout(speculators3, rename=under_layers, embed=True),
    },
    "dflash": {
        "zlab": Layout(zlab),
        "specforge": Layout(specforge_dflash),
        "speculators": Layout(speculators_dflash),
    },
}


# Reading and writing.


def kind_of(network: DrafterNetwork) -> str:
    return "dflash" if isinstance(network, DFlashHead) else "eagle3" if isinstance(network, Eagle3Head) else "eagle"


def read(folder: Path, target: str) -> Source:
    """A drafter folder of any layout, for a catalog key, a Hugging Face id or a folder."""
    pair = catalog.find(target)
    config = files.read_json(folder / "config.json")
    decoder = read_config(files.read_json(resolve(pair.source) / "config.json"))
    network = formats.parse(config, files.read_tensors(folder), decoder)
    return Source(config, network, decoder, pair.hub or Path(pair.title).name)


def embedding_of(target: str) -> Tensor:
    """The embedding table of a catalog key, a Hugging Face id or a folder."""
    return files.read_tensors(resolve(catalog.find(target).source))[EMBEDDING]


def table_for(source: Source, target: str, wanted: bool) -> Tensors:
    """The embedding to write: the drafter's own if it has one, else a copy of the target's where it is wanted."""
    own = source.network.embed_tokens
    if own is None and not wanted:
        return {}
    like = next(iter(source.network.parameters()))
    return {formats.EMBEDDING: own.weight if own is not None else embedding_of(target).to(like.dtype)}


def chosen(kind: str, name: str) -> tuple[str, Layout]:
    known = LAYOUTS[kind]
    name = name or next(iter(known))
    if name not in known:
        raise LoadError(f"a drafter of kind {kind} has no layout {name!r}: choose one of {', '.join(known)}")
    return name, known[name]


def write_tensors(tensors: Tensors, path: Path) -> None:
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    if path.suffix == ".bin":
        torch.save({name: tensor.clone() for name, tensor in whole.items()}, path)
    else:
        save_file(whole, path, {"format": "pt"})
    path.chmod(0o644)  # the library writes for the owner alone


def export(folder: Path, out: Path, target: str, layout: str = "", embed: bool = False) -> str:
    """Write the drafter in `folder` to `out` in a layout (default: that of ours); returns what was done."""
    if out.exists() and any(out.iterdir()):
        raise LoadError(f"{out} is not empty: name a folder that does not exist yet")
    source = read(folder, target)
    kind = kind_of(source.network)
    if kind == "dflash" and embed:
        raise LoadError("a DFlash drafter has no place for an embedding: leave out --embed")
    name, chosen_layout = chosen(kind, layout)
    config = chosen_layout.config(source)  # before anything is written: a layout may refuse
    tensors = chosen_layout.rename(source.tensors) | table_for(source, target, embed or chosen_layout.embed)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", config)
    write_tensors(tensors, out / chosen_layout.file)
    (out / "README.md").write_text(model_card(kind, source.name, folder), encoding="utf-8")
    copied = "with" if formats.EMBEDDING in tensors else "without"
    return f"{kind} drafter written to {out} in the layout {name}, {copied} an embedding"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models.export", description="Write a drafter for other programs.")
    parser.add_argument("folder", type=Path, help="a drafter, such as models/weights/smollm2-135m/eagle")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--target", help="its target: a catalog key, an id or a folder (default: the folder above)")
    names = "; ".join(f"{kind}: {', '.join(known)}" for kind, known in LAYOUTS.items())
    parser.add_argument("--layout", default="", help=f"{names} (default: the first)")
    parser.add_argument("--embed", action="store_true", help="add the target's embedding where a layout has none")
    args = parser.parse_args(argv)
    try:
        print(export(args.folder, args.out, args.target or args.folder.resolve().parent.name, args.layout, args.embed))
    except (ConfigError, FetchError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
