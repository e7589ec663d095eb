"""A target read from a GGUF file is the one read from its Hugging Face folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from safetensors.torch import load_file, save_file
from tokenizers import Regex, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

from models import gguf, gguf_names
from models.decoder import ConfigError
from models.load import Model, load_target
from tests.toy import MARKS, toy_tokenizer

SHAPE = {"vocab_size": 261, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "rms_norm_eps": 1e-5}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rope_theta": 5e4}
KINDS = {
    "llama": {"model_type": "llama"},
    "llama tied": {"model_type": "llama", "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
}
IDS = [5, 9, 200, 31, 77]


def folder_of(path: Path, change: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """A random target on disk, with transformers' own weights and biases."""
    config = SHAPE | {"tie_word_embeddings": False, "head_dim": 16} | change
    torch.manual_seed(1)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float()
    state = {name: torch.randn_like(t) * 0.2 for name, t in theirs.state_dict().items()}
    if config["tie_word_embeddings"]:
        del state["lm_head.weight"]
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(state, path / "model.safetensors", {"format": "pt"})
    return path, config


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Query and key rows as llama.cpp orders them: the halves RoPE turns against each other, pair by pair."""
    tail = rows.shape[1:]
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *tail).swapaxes(1, 2).reshape(rows.shape)


def gguf_name(name: str) -> str:
    outside = {ours: theirs for theirs, ours in gguf_names.OUTSIDE.items()}
    if name in outside:
        return outside[name]
    inside = {ours: theirs for theirs, ours in gguf_names.INSIDE.items()}
    _, _, layer, part, end = name.split(".", 3)[0:3] + [name.split(".", 3)[3].rsplit(".", 1)[0], name.rsplit(".", 1)[1]]
    return f"blk.{layer}.{inside[part]}.{end}"


def write(folder: Path, config: dict[str, Any], out: Path, kind: str = "F32", **more: Any) -> Path:
    """The same target as one GGUF file, its matrices stored as `kind`."""
    family = config["model_type"]
    writer = GGUFWriter(out, family)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_tokenizer(writer, more.get("split", "qwen2"))
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in load_file(folder / "model.safetensors").items():
        values, part = tensor.numpy(), name.split(".")[-2]
        values = interleaved(values, heads[part]) if family == "llama" and part in heads else values
        stored = GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(gguf_name(name), quantize(values, stored), raw_dtype=stored)
    if "divisors" in more:
        writer.add_tensor(gguf.FREQUENCIES, np.array(more["divisors"], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def add_tokenizer(writer: GGUFWriter, split: str) -> None:
    vocab = toy_tokenizer().get_vocab() | {"Ġa": 260}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(sorted(vocab, key=lambda word: vocab[word]))
    writer.add_token_types([3] * len(MARKS) + [1] * (len(vocab) - len(MARKS)))
    writer.add_token_merges(["Ġ a"])
    writer.add_eos_token_id(2)
    writer.add_chat_template(str(toy_tokenizer().chat_template))


def logits(model: Model) -> torch.Tensor:
    with torch.inference_mode():
        out = model.decoder(torch.tensor([IDS]), torch.arange(len(IDS))[None], wanted=(0, 1, 2))
        return torch.cat([model.decoder.lm_head(out.last), out.features], dim=-1)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_its_folder(tmp_path: Path, name: str) -> None:
    """Sizes, biases, per-head norms, tied heads, and the order of Llama's rows."""
    folder, config = folder_of(tmp_path / "hf", KINDS[name])
    ours = load_target(str(write(folder, config, tmp_path / "one.gguf")), "cpu")
    theirs = load_target(str(folder), "cpu")
    assert ours.decoder.config == theirs.decoder.config
    assert torch.equal(logits(ours), logits(theirs))


@pytest.mark.parametrize(("kind", "stored"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_halves_stay_as_they_are_stored(tmp_path: Path, kind: str, stored: torch.dtype) -> None:
    folder, config = folder_of(tmp_path / "hf", KINDS["qwen3"])
    model = load_target(str(write(folder, config, tmp_path / "one.gguf", kind)), "cpu", "stored")
    assert model.decoder.dtype == stored
    want = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(model.decoder.model.embed_tokens.weight, want.to(stored))


def test_blocks_become_the_numbers_they_stand_for(tmp_path: Path) -> None:
    folder, config = folder_of(tmp_path / "hf", KINDS["qwen3"])
    model = load_target(str(write(folder, config, tmp_path / "one.gguf", "Q8_0")), "cpu")
    kind = GGMLQuantizationType.Q8_0
    want = load_file(folder / "model.safetensors")["model.layers.1.mlp.up_proj.weight"].numpy()
    got = model.decoder.model.layers[1].mlp.up_proj.weight  # type: ignore[union-attr]
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, torch.from_numpy(dequantize(quantize(want, kind), kind)))


def test_llama3s_frequencies_are_those_of_its_config(tmp_path: Path) -> None:
    """GGUF holds the scaling as one divisor per frequency."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"original_max_position_embeddings": 32}
    folder, config = folder_of(tmp_path / "hf", KINDS["llama"])
    plain = load_target(str(folder), "cpu").decoder.config.rope
    (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": scaling}))
    scaled = load_target(str(folder), "cpu").decoder.config.rope
    divisors = [a / b for a, b in zip(plain.inv_freq, scaled.inv_freq, strict=True)]
    assert max(divisors) > 7
    got = load_target(str(write(folder, config, tmp_path / "one.gguf", divisors=divisors)), "cpu").decoder.config.rope
    assert got.inv_freq == pytest.approx(scaled.inv_freq, rel=1e-6)


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    folder, config = folder_of(tmp_path / "hf", KINDS["qwen3"])
    inside = tmp_path / "inside"
    inside.mkdir()
    write(folder, config, inside / "a.gguf")
    assert load_target(str(inside), "cpu").id == "a"
    write(folder, config, inside / "b.gguf")
    with pytest.raises(ConfigError, match="holds 2 GGUF files: name the one"):
        load_target(str(inside), "cpu")


@pytest.mark.parametrize("split", ["qwen2", "llama-bpe", "smollm"])
def test_the_tokenizer_is_rebuilt(tmp_path: Path, split: str) -> None:
    folder, config = folder_of(tmp_path / "hf", KINDS["qwen3"])
    model = load_target(str(write(folder, config, tmp_path / "one.gguf", split=split)), "cpu")
    assert model.tokenizer is not None
    text = "He said  12345 times: äöü 你好\n\n don't"
    assert model.tokenizer.text(model.tokenizer.raw(text)) == text
    chat = model.tokenizer.chat("hi")
    assert chat[0] == MARKS.index("<|im_start|>")
    assert 2 in model.stops


def test_numbers_are_split_as_the_makers_do() -> None:
    """Qwen one digit at a time, Llama 3 in threes."""
    pieces = {}
    for name in ("qwen2", "llama-bpe"):
        split = pre_tokenizers.Split(Regex(gguf.SPLITS[name]), "isolated")
        pieces[name] = [piece for piece, _ in split.pre_tokenize_str("it's 12345  x")]
    assert pieces["qwen2"] == ["it", "'s", " ", "1", "2", "3", "4", "5", " ", " x"]
    assert pieces["llama-bpe"] == ["it", "'s", " ", "123", "45", " ", " x"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder, config = folder_of(tmp_path / "hf", KINDS["qwen3"])
    path = write(folder, config, tmp_path / "one.gguf", split="tekken")
    with pytest.raises(ConfigError, match="kind we do not rebuild .tekken.: put the original"):
        load_target(str(path), "cpu")
    toy_tokenizer().save_pretrained(tmp_path)
    assert load_target(str(path), "cpu").tokenizer is not None
    for number, raw in enumerate((b"", b"GGUF", path.read_bytes()[:900])):
        half = tmp_path / f"half{number}.gguf"
        half.write_bytes(raw)
        with pytest.raises(ConfigError, match="cannot be read as GGUF: download it again"):
            load_target(str(half), "cpu")
    other = write(folder, config | {"model_type": "mamba"}, tmp_path / "mamba.gguf")
    with pytest.raises(ConfigError, match="'mamba': use one of llama, qwen2, qwen3"):
        load_target(str(other), "cpu")
