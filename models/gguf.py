"""A target from one GGUF file: config, weights and tokenizer, with nothing written beside it.

Weights stored as fp32, fp16 or bf16 keep their numbers; quantised ones become exactly the numbers their blocks stand
for, rounded to the number type the target runs in. One tensor is expanded at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.decoder import FAMILIES, ConfigError, DecoderConfig, read_config
from models.gguf_names import halves, hf_name, shortest
from models.layers import Rope
from models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer as Bpe

STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
FREQUENCIES = "rope_freqs.weight"  # llama3's scaling, as one divisor per frequency
CONTROL, OWN = 3, 4  # the file's numbers for tokens that stand for no text, and for words added by the makers

# How the tokenizers that GGUF knows by a nickname split a text before merging.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {"llama-bpe": WORDS + r"\p{N}{1,3}" + REST, "qwen2": WORDS + r"\p{N}" + REST, "smollm": ""}


def find(path: Path) -> Path | None:
    """The GGUF file a path names, or the one of a folder without a config.json; None where there is none."""
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    inside = sorted(path.glob("*.gguf"))
    if (path / "config.json").exists() or not inside:
        return None
    if len(inside) > 1:
        raise ConfigError(f"{path.name} holds {len(inside)} GGUF files: name the one to use")
    return inside[0]


@dataclass(frozen=True)
class File:
    """An open GGUF file."""

    path: Path
    reader: "GGUFReader"

    @classmethod
    def open(cls, path: Path) -> "File":
        from gguf import GGUFReader

        try:
            return cls(path, GGUFReader(path))
        except Exception as error:  # whatever half a file makes of the reader
            raise ConfigError(f"{path.name} cannot be read as GGUF: download it again ({str(error)[:120]})") from error

    def field(self, key: str, default: Any = None) -> Any:
        entry = self.reader.fields.get(key)
        return default if entry is None else entry.contents()

    def own(self, key: str, default: Any = None) -> Any:
        """A field of this architecture."""
        return self.field(f"{self.family}.{key}", default)

    @property
    def family(self) -> str:
        return str(self.field("general.architecture", ""))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows first, as everywhere but in the file."""
        return {t.name: tuple(int(n) for n in reversed(t.shape)) for t in self.reader.tensors}

    @property
    def stored(self) -> torch.dtype:
        """The number type of its matrices; bf16 stands for quantised ones, where memory decides."""
        kinds = {t.tensor_type.name for t in self.reader.tensors if len(t.shape) > 1}
        return STORED[kinds.pop()] if len(kinds) == 1 and kinds <= STORED.keys() else torch.bfloat16

    @cached_property
    def config(self) -> DecoderConfig:
        if self.family not in FAMILIES:
            raise ConfigError(
                f"{self.path.name} holds a model of kind {self.family!r}: use one of {', '.join(FAMILIES)}"
            )
        if self.own("rope.scaling.type", "none") not in ("none", ""):
            raise ConfigError(
                f"{self.path.name} scales its rotary angles, which is not supported in GGUF: use the original"
            )
        if "token_embd.weight" not in self.shapes:
            raise ConfigError(f"{self.path.name} has no token_embd.weight: it is no whole model")
        config = read_config(self.fields())
        return replace(config, rope=self.slowed(config.rope)) if FREQUENCIES in self.shapes else config

    def fields(self) -> dict[str, Any]:
        """A Hugging Face config with this file's sizes."""
        vocab, hidden = self.shapes["token_embd.weight"]
        heads = self.own("attention.head_count")
        return {
            "model_type": self.family,
            "vocab_size": vocab,
            "hidden_size": hidden,
            "intermediate_size": self.own("feed_forward_length"),
            "num_hidden_layers": self.own("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.own("attention.head_count_kv", heads),
            "head_dim": self.own("attention.key_length"),
            "rms_norm_eps": shortest(self.own("attention.layer_norm_rms_epsilon", 0)),
            "rope_theta": self.own("rope.freq_base", 10000.0),
            "max_position_embeddings": self.own("context_length"),
            "attention_bias": self.family != "qwen2" and "blk.0.attn_q.bias" in self.shapes,
            "tie_word_embeddings": "output.weight" not in self.shapes,
        }

    def slowed(self, rope: Rope) -> Rope:
        divisors = next(t.data for t in self.reader.tensors if t.name == FREQUENCIES).tolist()
        return Rope(tuple(f / d for f, d in zip(rope.inv_freq, divisors, strict=True)), rope.scale)

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """Names and weights as Hugging Face has them, one at a time."""
        import numpy as np
        from gguf import dequantize

        heads = {"attn_q": self.config.heads, "attn_k": self.config.kv_heads}
        for tensor in self.reader.tensors:
            if tensor.name == FREQUENCIES:
                continue
            values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            part = tensor.name.split(".")[-2]
            if self.family == "llama" and part in heads:
                values = unturned(values, heads[part])
            yield hf_name(tensor.name), torch.from_numpy(np.array(values)).to(dtype)


def unturned(values: Any, heads: int) -> Any:
    """Llama's query and key rows are interleaved in GGUF; a bias is a matrix of one column here."""
    return halves(values[:, None], heads)[:, 0] if values.ndim == 1 else halves(values, heads)


# The tokenizer.


def tokenizer(file: File) -> Tokenizer:
    """The file's own tokenizer, or the original's files where they lie beside it."""
    if (file.path.parent / "tokenizer.json").exists():
        return Tokenizer.load(file.path.parent)
    from transformers import PreTrainedTokenizerFast

    words: list[str] = file.field("tokenizer.ggml.tokens", [])
    marks = {
        f"{role}_token": words[i] for role in ("bos", "eos") if (i := file.field(f"tokenizer.ggml.{role}_token_id"))
    }
    hub = PreTrainedTokenizerFast(tokenizer_object=bpe(file, words), clean_up_tokenization_spaces=False, **marks)
    hub.chat_template = file.field("tokenizer.chat_template")
    return Tokenizer(hub)


def bpe(file: File, words: list[str]) -> "Bpe":
    """Byte-level BPE of the splits we know; another would cut texts in other places than the model learned."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    split = file.field("tokenizer.ggml.pre", "")
    if file.field("tokenizer.ggml.model") != "gpt2" or split not in SPLITS:
        raise ConfigError(
            f"the tokenizer in {file.path.name} is of a kind we do not rebuild ({split or 'unnamed'}): put the "
            "original model's tokenizer.json and tokenizer_config.json beside the file"
        )
    merges = [tuple(pair.split(" ", 1)) for pair in file.field("tokenizer.ggml.merges", [])]
    vocab = {word: i for i, word in enumerate(words)}
    try:
        found = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=split == "llama-bpe"))
    except Exception as error:  # merges that lead nowhere: the library has no name for it
        raise ConfigError(f"the tokenizer in {file.path.name} is damaged: {error}") from error
    found.pre_tokenizer = splitter(split)
    found.decoder = decoders.ByteLevel()
    if split == "qwen2":
        found.normalizer = normalizers.NFC()
    kinds = file.field("tokenizer.ggml.token_type", [])
    for special, kind in ((True, CONTROL), (False, OWN)):
        some = [word for word, its in zip(words, kinds, strict=True) if its == kind]
        found.add_tokens([AddedToken(word, normalized=False, special=special) for word in some])
    return found


def splitter(split: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if split == "smollm":
        first, rule = pre_tokenizers.Digits(individual_digits=True), True
    else:
        first, rule = pre_tokenizers.Split(Regex(SPLITS[split]), "isolated"), False
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=rule)
    return pre_tokenizers.Sequence([first, last])


def stops(file: File) -> frozenset[int]:
    """Ids the file calls an end."""
    found = (file.field(f"tokenizer.ggml.{role}_token_id") for role in ("eos", "eot"))
    return frozenset(int(i) for i in found if i is not None)
