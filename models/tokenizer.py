"""Text to ids and back. A token alone may be half a character: words are bytes first, and text where that holds."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models.decoder import ConfigError

Word = str | list[int]


def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes its 256 bytes with (GPT-2's table), back to bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class Tokenizer:
    """A Hugging Face tokenizer, plus what a picture needs: the exact bytes behind every single id."""

    def __init__(self, hub: PreTrainedTokenizerBase):
        self.hub = hub
        self.bytes_of = byte_alphabet()
        self.added = {i: token.content for i, token in hub.added_tokens_decoder.items()}
        vocab = hub.get_vocab()
        self.byte_level = "▁" not in vocab and ("Ġ" in vocab or any(t.startswith("Ġ") for t in list(vocab)[:2000]))

    @classmethod
    def load(cls, folder: Path, template: str = "") -> "Tokenizer":
        """A folder's tokenizer; `template` is for those that ship no chat template. Code in the folder is not run."""
        try:
            hub = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (ImportError, OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the tokenizer in {folder.name} cannot be read ({' '.join(str(error).split())[:160]}): one that is "
                "only a tokenizer.model needs 'pip install sentencepiece'"
            ) from error
        hub.chat_template = hub.chat_template or template or None
        return cls(hub)

    def chat(self, text: str) -> list[int]:
        """One user turn in the model's own chat template, ready for the answer; thinking modes are off."""
        if not self.hub.chat_template:
            raise ConfigError("this target has no chat template: give the prompt as it is, with --raw")
        turns = [{"role": "user", "content": text}]
        shown = self.hub.apply_chat_template(turns, add_generation_prompt=True, enable_thinking=False, tokenize=False)
        return self.raw(str(shown))

    def raw(self, text: str) -> list[int]:
        return self.hub.encode(text, add_special_tokens=False)

    def whole(self, text: str) -> list[int]:
        """A text from its very beginning, with the mark that some models always see there."""
        return self.hub.encode(text)

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of one id; ids past the tokenizer's end (padding rows) have a readable stand-in."""
        if token in self.added:
            return self.added[token].encode()
        piece = self.hub.convert_ids_to_tokens(token)
        if not isinstance(piece, str):
            return f"<{token}>".encode()
        if self.byte_level:
            return bytes(self.bytes_of[c] for c in piece)
        if len(piece) == 6 and piece.startswith("<0x"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()

    def word(self, token: int) -> Word:
        """The id's text, or its byte values where it is no complete text."""
        raw = self.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return list(raw)

    def text(self, tokens: list[int]) -> str:
        return b"".join(self.token_bytes(t) for t in tokens).decode(errors="replace")

    def stops(self) -> set[int]:
        """Ids that end an answer: the tokenizer's own, and the end markers of the known chat templates."""
        marks = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>")
        vocab = self.hub.get_vocab()
        found = {vocab[m] for m in marks if m in vocab}
        eos = self.hub.eos_token_id
        return found | ({eos} if isinstance(eos, int) else set())
