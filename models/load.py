"""A name → a model ready to run: finds the files, reads them, picks device and number type, and says what it did."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch

from models import catalog, formats
from models.decoder import ConfigError, Decoder, read_config
from models.fetch import fetch_embedded
from models.heads import DFlashHead, DrafterNetwork, Eagle3Head
from models.layers import speed_up
from models.tokenizer import Tokenizer


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
    def device(self) -> torch.device:
        return self.decoder.device

    def sync(self) -> None:
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
    def head_rows(self) -> int:
        """Rows of its own LM head; 0 where it borrows the target's."""
        return self.module.config.draft_vocab if isinstance(self.module, Eagle3Head) else 0

    @property
    def layer_weights(self) -> int:
        """Numbers one layer reads per pass; what belongs to no layer (fc) is shared out among them."""
        own = sum(p.numel() for p in self.module.parameters())
        if isinstance(self.module, Eagle3Head):
            own -= self.module.lm_head.weight.numel()
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


def pick_dtype(device: torch.device, name: str = "auto") -> torch.dtype:
    """auto: fp32 on CPU, where exactness is the point; bf16 on CUDA, fp16 where bf16 is not native."""
    known = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name == "auto":
        half = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp16"
        name = "fp32" if device.type == "cpu" else half
    if name not in known:
        raise LoadError(f"dtype {name!r}: choose one of {', '.join(known)}")
    return known[name]


def resolve(source: str) -> Path:
    """A catalog source → a folder: the embedded target, a bundled drafter, a local folder, or a hub snapshot."""
    if source == "embedded":
        return fetch_embedded()
    if source.startswith("bundled:"):
        return catalog.BUNDLED / source.removeprefix("bundled:")
    if Path(source).is_dir():
        return Path(source)
    return download(source)


def download(source: str) -> Path:
    """A Hugging Face id → its snapshot folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(
            snapshot_download(source, allow_patterns=["*.json", "*.safetensors", "*.bin", "*.jinja", "*.model"])
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise LoadError(
            f"{source!r} is no folder here and cannot be fetched from the model hub ({type(error).__name__}): "
            "check the name and the network, or give the path of a folder with the model"
        ) from error


def read_decoder(folder: Path, device: torch.device, dtype: torch.dtype) -> Decoder:
    """A folder with config.json and safetensors → a decoder; memory-mapped on CPU in fp32."""
    config = read_config(formats.read_json(folder / "config.json"))
    tensors = formats.read_tensors(folder)
    tensors = {name: t for name, t in tensors.items() if "rotary_emb" not in name}
    if config.tied:  # never tied merely because the head is absent: that file has lost it
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    with torch.device("meta"):
        decoder = Decoder(config)
    try:
        decoder.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise LoadError(f"{folder.name}: weights and config do not fit: {' '.join(str(error).split())}") from error
    decoder = decoder.to(device=device, dtype=dtype).eval().requires_grad_(False)
    speed_up(decoder)
    return decoder


def stop_ids(folder: Path, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Union of what config, generation config and tokenizer call the end."""
    found = tokenizer.stops() if tokenizer else set()
    for name in ("config.json", "generation_config.json"):
        stated = formats.read_json(folder / name).get("eos_token_id") if (folder / name).exists() else None
        found |= set(stated) if isinstance(stated, list) else set() if stated is None else {int(stated)}
    return frozenset(found)


def load_target(name: str = "smollm2-135m", device: str = "auto", dtype: str = "auto") -> Model:
    """A catalog key, a Hugging Face id or a folder → Model. Raises LoadError, ConfigError or FetchError."""
    pair = catalog.find(name)
    folder = resolve(pair.source)
    place = pick_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False  # lossless means the same fp32 sums on every path
    torch.backends.cudnn.allow_tf32 = False
    decoder = read_decoder(folder, place, pick_dtype(place, dtype))
    tokenizer = Tokenizer.load(folder) if (folder / "tokenizer_config.json").exists() else None
    stops = stop_ids(folder, tokenizer)
    return Model(decoder, tokenizer, pair.title, formats.fingerprint(folder), stops, dict(pair.drafters))


def load_network(model: Model, source: str) -> Network:
    """A drafter for `model` from a bundled folder, a local one or the hub; raises FormatError where it does not fit."""
    folder = resolve(source)
    module = formats.load(folder, model.decoder.config)
    return finish(module, model, source.split(":")[-1], formats.fingerprint(folder))


def finish(module: DrafterNetwork, model: Model, id: str, hash: str) -> Network:
    """Put a network where its target is, in the target's number type, with packed weights."""
    module = module.to(device=model.device, dtype=model.decoder.dtype).eval().requires_grad_(False)
    speed_up(module)
    return Network(module, id, hash)
