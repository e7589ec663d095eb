"""Tiny random models: a target of 4 layers and the three kinds of drafters, in memory or as folders on disk.

Random drafters guess badly, which is what most tests want: every rule must hold whatever is drafted.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Bpe
from tokenizers import decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from models.decoder import Decoder, read_config
from models.heads import (
    DFlashConfig,
    DFlashHead,
    DrafterNetwork,
    Eagle3Config,
    Eagle3Head,
    EagleConfig,
    EagleHead,
)
from models.layers import AttentionShape, Rope, default_inv_freq, speed_up
from models.load import Model, Network, finish
from models.tokenizer import Tokenizer

HIDDEN, FFN, HEADS, KV_HEADS, LAYERS, THETA, EPS = 32, 64, 4, 2, 4, 10000.0, 1e-5
FUSED = (0, 2, 3)  # hidden_states indices EAGLE-3 reads here
TAPPED = (0, 2)  # layer ids DFlash reads here, as its config counts them
BLOCK, MASK = 8, 3
WORDS = 260  # the vocabulary of `toy_tokenizer`: every byte and four marks
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def target_config(vocab: int) -> dict[str, Any]:
    """A Llama config.json in miniature."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }


def randomise(module: nn.Module, seed: int) -> None:
    """Weights wide enough that logits differ clearly, so that greedy choices are no near-ties; norms stay one."""
    rng = torch.Generator().manual_seed(seed)
    for weight in (p for p in module.parameters() if p.dim() > 1):
        nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5, generator=rng)
    for name, bias in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(bias)


def toy_model(seed: int = 0, vocab: int = 64) -> Model:
    """A target of ids only: no tokenizer, no stop tokens, a context of 512."""
    decoder = Decoder(read_config(target_config(vocab)))
    randomise(decoder, seed)
    decoder = decoder.eval().requires_grad_(False)
    speed_up(decoder)
    return Model(decoder, None, "toy", f"toy{seed}", frozenset())


def shape(width: int, qk_norm: bool = False) -> AttentionShape:
    return AttentionShape(width, HIDDEN, HEADS, KV_HEADS, HIDDEN // HEADS, EPS, qk_norm=qk_norm)


def blank(kind: str, vocab: int) -> DrafterNetwork:
    rope = Rope(default_inv_freq(THETA, HIDDEN // HEADS))
    if kind == "eagle":
        return EagleHead(EagleConfig(HIDDEN, FFN, shape(HIDDEN), rope, bias=True, feature_layers=(LAYERS,)))
    if kind == "eagle3":
        words = vocab * 3 // 4
        return Eagle3Head(Eagle3Config(HIDDEN, HIDDEN, FFN, shape(2 * HIDDEN), rope, vocab, words, FUSED))
    taps, full = tuple(i + 1 for i in TAPPED), (False, False)
    return DFlashHead(
        DFlashConfig(HIDDEN, FFN, 2, shape(HIDDEN, qk_norm=True), rope, BLOCK, MASK, taps, windows=(0, 0), causal=full)
    )


def random_network(kind: str, vocab: int, seed: int) -> DrafterNetwork:
    """A drafter of that kind with random weights; EAGLE-3's words are a random three quarters of the vocabulary."""
    module = blank(kind, vocab)
    randomise(module, seed)
    if isinstance(module, Eagle3Head):
        words = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))[: module.config.draft_vocab]
        words = words.sort().values
        module.d2t.copy_(words - torch.arange(len(words)))
        module.t2d[words] = True
    return module


def toy_networks(model: Model, seed: int = 1) -> dict[str, Network]:
    """A random drafter of every kind for `model`, by kind: eagle, eagle3, dflash."""
    vocab = model.decoder.config.vocab
    modules = {kind: random_network(kind, vocab, seed) for kind in ("eagle", "eagle3", "dflash")}
    return {kind: finish(module, model, f"toy-{kind}", f"{kind}{seed}") for kind, module in modules.items()}


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, without merges: one id a byte, so that any character but ASCII is spread over several ids."""
    vocab = {c: i for i, c in enumerate([*MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    bpe = Bpe(models.BPE(vocab=vocab, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(list(MARKS))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=MARKS[2], chat_template=CHAT)


def talking_model(seed: int = 0) -> Model:
    """A toy target that reads and writes text, with the stop tokens of its tokenizer."""
    model, tokenizer = toy_model(seed, WORDS), Tokenizer(toy_tokenizer())
    return Model(model.decoder, tokenizer, "toy", f"toy{seed}", frozenset(tokenizer.stops()))


def drafter_config(kind: str, vocab: int) -> dict[str, Any]:
    """The config.json that goes with `random_network`."""
    config = target_config(vocab) | {"head_dim": HIDDEN // HEADS}
    if kind == "eagle3":
        config |= {"draft_vocab_size": vocab * 3 // 4, "eagle_aux_hidden_state_layer_ids": list(FUSED)}
    if kind == "dflash":
        inner = {"mask_token_id": MASK, "target_layer_ids": list(TAPPED)}
        config |= {"num_hidden_layers": 2, "block_size": BLOCK, "dflash_config": inner}
    return config


def write_folder(folder: Path, config: dict[str, Any], module: nn.Module) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def toy_folder(folder: Path, seed: int = 0) -> Path:
    """`talking_model` on disk, as any target folder is laid out."""
    write_folder(folder, target_config(WORDS), talking_model(seed).decoder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def toy_drafter_folders(folder: Path, seed: int = 1) -> dict[str, Path]:
    """A random drafter of every kind for `toy_folder`, each in a folder of its own."""
    kinds = ("eagle", "eagle3", "dflash")
    made = {kind: random_network(kind, WORDS, seed) for kind in kinds}
    return {kind: write_folder(folder / kind, drafter_config(kind, WORDS), made[kind]) for kind in kinds}
