"""A name → a model ready to run: finds the files, reads them, picks device and number type, and says what it did."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from models import catalog, files, formats, gguf
from models.decoder import ConfigError, Decoder, DecoderConfig, read_config
from models.fetch import fetch_embedded
from models.heads import DFlashHead, DrafterNetwork, Eagle3Head, EagleHead
from models.layers import bytes_a_weight, speed_up
from models.memory import ROOM, copies, free_bytes, size
from models.tokenizer import Tokenizer

WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
FEW_BITS = "fewbits"
EMBEDDING = "model.embed_tokens.weight"


class LoadError(ConfigError):
    """A model that cannot be loaded here; the message says what to do."""


@dataclass(frozen=True)
class Model:
    """A loaded target: shared by all runs, changed by none. `tokenizer` is None for models made of ids only."""

    decoder: Decoder
    tokenizer: Tokenizer | None
    id: str
    hash: str
    stops: frozenset[int]
    drafters: dict[str, str] = field(default_factory=dict)

    @property
    def few_bits(self) -> bool:
        """Whether its weights are read in the bits they were published with."""
        return bytes_a_weight(self.decoder) > 0

    @property
    def number_type(self) -> str:
        """What it computes in, and how its weights are read where that is not the same."""
        name = str(self.decoder.dtype).removeprefix("torch.")
        return f"{name} (few bits)" if self.few_bits else name

    @property
    def device(self) -> torch.device:
        return self.decoder.device

    def wait(self) -> None:
        """Wait for the device, so that a clock reads finished work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def device_name(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return cpu_name()


def cpu_name() -> str:
    """The processor as the system names it, with the number of cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        import platform

        name = platform.processor() or platform.machine()
    return f"{name}, {cores} cores"


@dataclass(frozen=True)
class Network:
    """A loaded drafter network: shared by all runs."""

    module: DrafterNetwork
    id: str
    hash: str

    @property
    def kind(self) -> str:
        if isinstance(self.module, DFlashHead):
            return "dflash"
        return "eagle3" if isinstance(self.module, Eagle3Head) else "eagle"

    @property
    def layers(self) -> int:
        return len(self.module.layers) if isinstance(self.module, DFlashHead) else 1

    @property
    def block(self) -> int:
        """Slots of the blocks it was trained with; 0 where it drafts no blocks."""
        return self.module.config.block_size if isinstance(self.module, DFlashHead) else 0

    @property
    def head_rows(self) -> int:
        """Rows of its own LM head; 0 where it borrows the target's."""
        return 0 if isinstance(self.module, EagleHead) else self.module.config.draft_vocab

    @property
    def words(self) -> frozenset[int] | None:
        """The target's ids it can guess; None where that is all of them."""
        if isinstance(self.module, EagleHead) or self.module.d2t is None:
            return None
        rows = torch.arange(self.head_rows, device=self.module.d2t.device)
        return frozenset(self.module.to_target(rows).tolist())

    @property
    def layer_weights(self) -> int:
        """Numbers one layer reads per pass; what belongs to no layer (fc) is shared out among them."""
        tables = ("lm_head.weight", "embed_tokens.weight")  # read by the head call, or a row at a time
        own = sum(p.numel() for name, p in self.module.named_parameters() if name not in tables)
        return own // self.layers


def pick_device(name: str = "auto") -> torch.device:
    """auto: CUDA where there is one, else CPU. DRAFTSCOPE_DEVICE overrides auto."""
    if name == "auto":
        name = os.environ.get("DRAFTSCOPE_DEVICE", "auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise LoadError(f"device {name!r}: choose auto, cpu or cuda")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LoadError("no CUDA device can be used here: choose --device cpu")
    return device


def pick_dtype(device: torch.device, name: str = "auto", stored: torch.dtype = torch.bfloat16) -> torch.dtype:
    """auto: fp32 on CPU, where exactness is the point; on CUDA the half type it is `stored` in, bf16 for fp32 ones,
    fp16 where bf16 is not native. DRAFTSCOPE_DTYPE overrides auto.

    stored: as it is in the file. fewbits: fp32 on CPU, with weights read in the bits they were published with.
    """
    if name == "auto":
        name = os.environ.get("DRAFTSCOPE_DTYPE", "auto")
    if name == FEW_BITS and device.type != "cpu":
        raise LoadError(f"dtype {FEW_BITS} is for the processor: choose another one, or --device cpu")
    known = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "stored": stored}
    known[FEW_BITS] = torch.float32
    if name == "auto":
        native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        half = "bf16" if native and stored != torch.float16 else "fp16"
        name = "fp32" if device.type == "cpu" else half
    if name not in known:
        raise LoadError(f"dtype {name!r}: choose one of {', '.join(known)}")
    return known[name]


def asks_few_bits(name: str) -> bool:
    return (os.environ.get("DRAFTSCOPE_DTYPE") if name == "auto" else name) == FEW_BITS


def resolve(source: str) -> Path:
    """A catalog source → a folder: the embedded target, a bundled drafter, a local folder (or GGUF), a hub snapshot."""
    if source == "embedded":
        return fetch_embedded()
    if source.startswith("bundled:"):
        return catalog.BUNDLED / source.removeprefix("bundled:")
    if Path(source).is_dir() or source.endswith(".gguf") and Path(source).is_file():
        return Path(source)
    return download(source)


def download(source: str) -> Path:
    """A Hugging Face id → its snapshot folder: texts and .safetensors, .bin files only where there are none of those.

    Code is never among it. The client shows its progress and goes on where it was broken off.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    try:
        folder = Path(snapshot_download(source, allow_patterns=WANTED, ignore_patterns=["*/*"]))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(source, allow_patterns=[*WANTED, "*.bin"], ignore_patterns=["*/*"])
        return folder
    except GatedRepoError as error:
        raise LoadError(
            f"{source!r} asks for a licence first: accept it on its page of the model hub, then run 'hf auth login'"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise LoadError(
            f"{source!r} is no folder here and cannot be fetched from the model hub ({type(error).__name__}): "
            "check the name and the network, or give the path of a folder with the model"
        ) from error


def fitting(config: DecoderConfig, stored: torch.dtype, device: torch.device, name: str) -> torch.dtype:
    """The number type to run in; LoadError where the model cannot fit.

    On CPU a model too big for fp32 runs as it is stored: mapped from its file, so that it is in memory once.
    """
    dtype, have = pick_dtype(device, name, stored), ROOM * free_bytes(device)
    need = size(config) * dtype.itemsize * copies(device, dtype)
    if device.type == "cpu" and name == "auto" and need > have and dtype != stored:
        return stored
    if device.type == "cuda" and need > have:
        raise LoadError(
            f"this target needs {need / 1e9:.1f} GB in {str(dtype).removeprefix('torch.')} and {have / 1e9:.1f} GB of "
            "the GPU's memory can be used: choose a smaller target, or --device cpu"
        )
    return dtype


def read_decoder(folder: Path, device: torch.device, dtype: str) -> Decoder:
    """A folder with config.json and weights → a decoder. Weights are mapped, and copied one by one where the device
    or the number type asks for it, so the model is never in memory twice."""
    config = read_config(files.read_json(folder / "config.json"))
    tensors = {name: t for name, t in files.read_tensors(folder).items() if "rotary_emb" not in name}
    files.check_types(tensors)
    kind = fitting(config, files.stored_dtype(tensors), device, dtype)
    return assemble(config, tensors, device, kind, folder.name, asks_few_bits(dtype))


def assemble(
    config: DecoderConfig,
    tensors: files.Tensors,
    device: torch.device,
    kind: torch.dtype,
    name: str,
    few_bits: bool = False,
) -> Decoder:
    """Weights under Hugging Face's names → a decoder on `device`, ready to run."""
    with torch.device("meta"):
        decoder = Decoder(config)
    if config.tied and EMBEDDING in tensors:  # never tied merely because the head is absent: that file has lost it
        tensors["lm_head.weight"] = tensors[EMBEDDING]
    try:
        formats.check_names(decoder.state_dict(), tensors)
    except formats.FormatError as error:
        raise LoadError(f"{name}: {error}") from error
    decoder.load_state_dict(tensors, assign=True)
    if config.tied:
        decoder.lm_head.weight = decoder.model.embed_tokens.weight  # one weight again, so that it is copied once
    decoder = decoder.to(device=device, dtype=kind).eval().requires_grad_(False)
    files.check_finite(decoder.named_parameters())
    speed_up(decoder, few_bits)
    return decoder


def stop_ids(folder: Path, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Union of what config, generation config and tokenizer call the end."""
    found = tokenizer.stops() if tokenizer else set()
    for name in ("config.json", "generation_config.json"):
        stated = files.read_json(folder / name).get("eos_token_id") if (folder / name).exists() else None
        found |= set(stated) if isinstance(stated, list) else set() if stated is None else {int(stated)}
    return frozenset(found)


def load_target(name: str = "smollm2-135m", device: str = "auto", dtype: str = "auto") -> Model:
    """A catalog key, a Hugging Face id or a folder → Model. Raises LoadError, ConfigError or FetchError."""
    pair = catalog.find(name)
    folder = resolve(pair.source)
    place = pick_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False  # lossless means the same fp32 sums on every path
    torch.backends.cudnn.allow_tf32 = False
    if (path := gguf.find(folder)) is not None:
        return load_gguf(path, pair, place, dtype)
    decoder = read_decoder(folder, place, dtype)
    tokenizer = Tokenizer.load(folder, pair.template) if (folder / "tokenizer_config.json").exists() else None
    stops = stop_ids(folder, tokenizer)
    return Model(decoder, tokenizer, pair.title, files.fingerprint(folder), stops, dict(pair.drafters))


def load_gguf(path: Path, pair: catalog.Pair, device: torch.device, dtype: str) -> Model:
    """A target that is one GGUF file."""
    file = gguf.File.open(path)
    kind = fitting(file.config, file.stored, device, dtype)
    decoder = assemble(file.config, dict(file.tensors(kind)), device, kind, path.name, asks_few_bits(dtype))
    tokenizer = gguf.tokenizer(file)
    stops = gguf.stops(file) | tokenizer.stops()
    return Model(decoder, tokenizer, path.stem, files.digest([path]), frozenset(stops), dict(pair.drafters))


def load_network(model: Model, source: str) -> Network:
    """A drafter for `model` from a bundled folder, a local one or the hub; raises FormatError where it does not fit."""
    folder = resolve(source)
    module = formats.load(folder, model.decoder.config)
    share(module, model.decoder)
    return finish(module, model, source.split(":")[-1], files.fingerprint(folder))


def share(module: DrafterNetwork, decoder: Decoder) -> None:
    """Let go of tables that merely copy the target's: most published EAGLE files hold its embedding again."""
    own = module.embed_tokens
    if own is not None and same_rows(own.weight, decoder.model.embed_tokens.weight):
        module.embed_tokens = None
        module.config = replace(module.config, own_embedding=0)  # type: ignore[assignment]
    if not isinstance(module, DFlashHead) or module.lm_head is None:
        return
    if same_rows(module.lm_head.weight, decoder.lm_head.weight):
        module.lm_head, module.d2t = None, None
        module.config = replace(module.config, draft_vocab=0)  # type: ignore[assignment]


def same_rows(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tables hold the same numbers, as far as the number type of `b` tells them apart."""
    if a.shape != b.shape:
        return False
    pairs = zip(a.split(4096), b.split(4096), strict=True)
    return all(torch.equal(x.to(device=y.device, dtype=y.dtype), y) for x, y in pairs)


def finish(module: DrafterNetwork, model: Model, id: str, hash: str) -> Network:
    """Put a network where its target is, in the target's number type, with packed weights."""
    module = module.to(device=model.device, dtype=model.decoder.dtype).eval().requires_grad_(False)
    speed_up(module, model.few_bits)
    return Network(module, id, hash)
