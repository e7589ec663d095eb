"""How a GGUF file names and orders the tensors of a Llama, Qwen2 or Qwen3 model, against Hugging Face. No torch."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """blk.7.attn_q.weight → model.layers.7.self_attn.q_proj.weight; an unknown name stays, to be named in the error."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in INSIDE:
        return name
    return f"model.layers.{parts[1]}.{INSIDE[parts[2]]}.{parts[3]}"


def halves(weight: "np.ndarray", heads: int) -> "np.ndarray":
    """Undo the GGUF's row order: it interleaves the two halves that RoPE rotates together."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def shortest(value: float) -> float:
    """The shortest decimal of a float32: 1e-05, not 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))
