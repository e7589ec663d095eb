"""Three hundred damaged checkpoints: each gives one clear error, runs nothing, and leaves nothing half loaded.

Every kind of drafter is damaged in every way below, several times with other seeds. What still loads is a failure too:
each of these damages changes what would be drafted.
"""

import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from models import files, formats
from models.decoder import ConfigError, DecoderConfig
from tests.toy import drafter_config, random_network, toy_model

VOCAB = 64
KINDS = ("eagle", "eagle3", "dflash")
Parts = tuple[dict[str, Any], dict[str, Tensor]]


@pytest.fixture(scope="module")
def target() -> DecoderConfig:
    return toy_model().decoder.config


def parts(kind: str) -> Parts:
    module = random_network(kind, VOCAB, seed=3)
    return drafter_config(kind, VOCAB), {name: t.detach().clone() for name, t in module.state_dict().items()}


def write(folder: Path, config: Any, tensors: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def weights(tensors: dict[str, Tensor]) -> list[str]:
    return [name for name, tensor in tensors.items() if tensor.is_floating_point()]


# Damages to tensors: change them in place.


def lose(tensors: dict[str, Tensor], rng: random.Random) -> None:
    del tensors[rng.choice([name for name in tensors if name != "t2d"])]  # d2t says the same as t2d


def rename(tensors: dict[str, Tensor], rng: random.Random) -> None:
    name = rng.choice(weights(tensors))
    tensors["x." + name] = tensors.pop(name)


def swap(tensors: dict[str, Tensor], rng: random.Random) -> None:
    """Two names of different shapes change places."""
    while True:
        a, b = rng.sample(weights(tensors), 2)
        if tensors[a].shape != tensors[b].shape:
            tensors[a], tensors[b] = tensors[b], tensors[a]
            return


def add(tensors: dict[str, Tensor], rng: random.Random) -> None:
    tensors[f"layers.{rng.randrange(9)}.strange.weight"] = torch.ones(3)


def retype(tensors: dict[str, Tensor], rng: random.Random) -> None:
    name = rng.choice(weights(tensors))
    kinds = [torch.int8, torch.int32, torch.uint8, torch.float64, torch.bool, torch.float8_e4m3fn]
    tensors[name] = tensors[name].to(rng.choice(kinds))


def poison(tensors: dict[str, Tensor], rng: random.Random) -> None:
    tensor = tensors[rng.choice(weights(tensors))].view(-1)
    tensor[rng.randrange(len(tensor))] = rng.choice([float("nan"), float("inf"), -float("inf")])


def cut(tensors: dict[str, Tensor], rng: random.Random) -> None:
    name = rng.choice(weights(tensors))
    tensors[name] = tensors[name][:-1].contiguous()


def fold(tensors: dict[str, Tensor], rng: random.Random) -> None:
    """Another number of dimensions."""
    name = rng.choice(weights(tensors))
    tensors[name] = tensors[name][None] if rng.random() < 0.5 else tensors[name].view(-1)[0].clone()


TENSOR_DAMAGES = [lose, rename, swap, add, retype, poison, cut, fold]


@pytest.mark.parametrize("damage", TENSOR_DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_tensors(tmp_path: Path, target: DecoderConfig, kind: str, damage: Callable[..., None]) -> None:
    for seed in range(6):
        config, tensors = parts(kind)
        damage(tensors, random.Random(seed))
        write(tmp_path / str(seed), config, tensors)
        assert_refused(tmp_path / str(seed), target)


# Damages to the config.

WRONG = (None, -1, 0, 7, 10**12, 2**80, "many", [], {}, [1], 0.5, float("nan"), True)
NEEDED = ("hidden_size", "num_attention_heads", "rms_norm_eps")
FIELDS = {
    "eagle": (*NEEDED, "intermediate_size"),
    "eagle3": (*NEEDED, "draft_vocab_size"),
    "dflash": (*NEEDED, "intermediate_size", "num_hidden_layers", "block_size"),
}
FINE = {  # what these values may mean, or where the field is then read off the weights
    ("eagle3", "draft_vocab_size"): (None, 0, [], {}),
    ("dflash", "block_size"): (7,),
    "rms_norm_eps": (7, 0.5, 10**12, 2**80),
}


def is_fine(kind: str, field: str, value: Any) -> bool:
    kinds = FINE.get((kind, field), ()) + FINE.get(field, ())
    return any(value == fine and type(value) is type(fine) for fine in kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_values_in_the_config(tmp_path: Path, target: DecoderConfig, kind: str) -> None:
    for field in FIELDS[kind]:
        for number, value in enumerate(v for v in WRONG if not is_fine(kind, field, v)):
            config, tensors = parts(kind)
            folder = tmp_path / f"{field}{number}"
            write(folder, config | {field: value}, tensors)
            assert_refused(folder, target)


ODD = [
    {"rope_theta": "much"},
    {"rope_theta": -1},
    {"rope_scaling": [1]},
    {"rope_scaling": {"rope_type": "llama3"}},
    {"rope_scaling": {"rope_type": ["llama3"]}},
    {"vocab_size": "all"},
    {"vocab_size": 10**15},
    {"hidden_act": "relu"},
    {"num_key_value_heads": 3},
    {"head_dim": 80},
    {"transformer_layer_config": 5},
    {"speculators_model_type": "medusa"},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ODD, ids=lambda change: json.dumps(change))
def test_odd_fields(tmp_path: Path, target: DecoderConfig, kind: str, change: dict[str, Any]) -> None:
    config, tensors = parts(kind)
    write(tmp_path, config | change, tensors)
    assert_refused(tmp_path, target)


@pytest.mark.parametrize("ids", [5, "0", [], ["a"], [0.5], [True], [[0]], [-1, 2], [2, 2], [0, 10**20]])
def test_layer_ids_that_are_none(tmp_path: Path, target: DecoderConfig, ids: Any) -> None:
    config, tensors = parts("dflash")
    config["dflash_config"] |= {"target_layer_ids": ids}
    write(tmp_path / "dflash", config, tensors)
    assert_refused(tmp_path / "dflash", target)
    config, tensors = parts("eagle3")
    if ids != []:  # an empty list reads as none, and the published default then needs a deeper target
        write(tmp_path / "eagle3", config | {"eagle_aux_hidden_state_layer_ids": ids}, tensors)
        assert_refused(tmp_path / "eagle3", target)


@pytest.mark.parametrize("text", ["", "[]", "null", "7", '"a"', "{", '{"a": 1}}', "[" * 9000, "\x00", '{"a": NaN}'])
def test_a_config_that_is_none(tmp_path: Path, target: DecoderConfig, text: str) -> None:
    write(tmp_path, {}, parts("eagle")[1])
    (tmp_path / "config.json").write_text(text)
    assert_refused(tmp_path, target)


# Damages to the bytes of a file.


def damaged_bytes(raw: bytes, rng: random.Random, header: bool) -> bytes:
    """Cut short, empty, something else, overwritten at both ends; `header`: or lying about the length of its header."""
    ways = [
        raw[: rng.randrange(len(raw))],
        b"\x07" * 64 + raw[64:-64] + b"\x07" * 64,
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        b"",
    ]
    lies = [number.to_bytes(8, "little") + raw[8:] for number in (0, 2**40, 2**63)] + [raw[:9] + b"\xff" * 9 + raw[18:]]
    return rng.choice(ways + lies if header else ways)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("seed", range(24))
def test_damaged_bytes(tmp_path: Path, target: DecoderConfig, file: str, seed: int) -> None:
    config, tensors = parts(KINDS[seed % 3])
    (tmp_path / "config.json").write_text(json.dumps(config))
    safe = file.endswith("safetensors")
    (save_file if safe else torch.save)(tensors, tmp_path / file)
    (tmp_path / file).write_bytes(damaged_bytes((tmp_path / file).read_bytes(), random.Random(seed), safe))
    assert_refused(tmp_path, target)


# Pickles.


class Program:
    """A pickle that leaves a file behind if it is ever run."""

    def __init__(self, call: Callable[..., Any], *args: Any):
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.args


def zipped(pickled: bytes) -> bytes:
    """The shape of a modern .bin: a zip with a pickle inside."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    return raw.getvalue()


CALLS = [
    lambda mark: Program(os.system, f"touch {mark}"),
    lambda mark: Program(eval, f"__import__('pathlib').Path({str(mark)!r}).touch()"),
    lambda mark: Program(exec, f"import pathlib; pathlib.Path({str(mark)!r}).touch()"),
    lambda mark: Program(Path.touch, mark),
]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("call", CALLS, ids=["system", "eval", "exec", "touch"])
@pytest.mark.parametrize("wrap", [zipped, bytes], ids=["zip", "bare"])
def test_a_pickle_with_code_is_not_run(
    tmp_path: Path, target: DecoderConfig, protocol: int, call: Callable[[Path], Program], wrap: Callable[..., bytes]
) -> None:
    mark = tmp_path / "ran"
    raw = wrap(pickle.dumps({"fc.weight": call(mark)}, protocol))
    (tmp_path / "config.json").write_text(json.dumps(parts("eagle")[0]))
    (tmp_path / "pytorch_model.bin").write_bytes(raw)
    assert_refused(tmp_path, target)
    assert not mark.exists()
    pickle.loads(pickle.dumps({"fc.weight": call(mark)}, protocol))
    assert mark.exists()  # the same pickle does run where it is let


def test_the_program_a_pickle_asks_for_is_named(tmp_path: Path, target: DecoderConfig) -> None:
    (tmp_path / "config.json").write_text(json.dumps(parts("eagle")[0]))
    torch.save({"fc.weight": torch.nn.Linear(2, 2)}, tmp_path / "pytorch_model.bin")
    said = assert_refused(tmp_path, target)
    assert "asks for torch.nn.modules.linear.Linear: it was not opened" in said
    assert ".safetensors" in said


@pytest.mark.parametrize("content", [[], {}, {"a": 1}, {1: torch.ones(2)}, torch.ones(2), {"a": {"b": torch.ones(1)}}])
def test_a_bin_without_a_table_of_tensors(tmp_path: Path, target: DecoderConfig, content: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(parts("eagle")[0]))
    torch.save(content, tmp_path / "pytorch_model.bin")
    assert_refused(tmp_path, target)


def test_tensors_that_are_not_plain(tmp_path: Path, target: DecoderConfig) -> None:
    config, tensors = parts("eagle")
    (tmp_path / "config.json").write_text(json.dumps(config))
    for odd in (torch.ones(3, 3).to_sparse(), torch.empty(3, 3, device="meta")):
        torch.save(tensors | {"fc.weight": odd}, tmp_path / "pytorch_model.bin")
        assert_refused(tmp_path, target)


# Shards.


def test_shards_that_do_not_make_a_whole(tmp_path: Path, target: DecoderConfig) -> None:
    config, tensors = parts("eagle")
    write(tmp_path, config, tensors)
    index = tmp_path / "model.safetensors.index.json"
    for content in ({}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"fc.weight": 3}}):
        index.write_text(json.dumps(content))
        assert "has no weight_map" in assert_refused(tmp_path, target)
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}))
    assert "lacks model-2.safetensors, named in model.safetensors.index.json" in assert_refused(tmp_path, target)
    index.write_text(json.dumps({"weight_map": {"a": "../other/model.safetensors"}}))
    assert "no file of this folder" in assert_refused(tmp_path, target)
    index.unlink()
    save_file(tensors, tmp_path / "model-2.safetensors")
    assert "again: keep one set of weight files" in assert_refused(tmp_path, target)


def test_only_what_the_index_lists_is_read(tmp_path: Path, target: DecoderConfig) -> None:
    config, tensors = parts("eagle")
    write(tmp_path, config, tensors)
    save_file({"strange": torch.ones(1)}, tmp_path / "model-old.safetensors")
    index = {"weight_map": {name: "model.safetensors" for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert files.weight_files(tmp_path) == [tmp_path / "model.safetensors"]
    formats.load(tmp_path, target)


# What every damage must lead to.


def assert_refused(folder: Path, target: DecoderConfig) -> str:
    """One ConfigError of one clear line, and no network."""
    made = []
    with pytest.raises(ConfigError) as error:
        made.append(formats.load(folder, target))
    assert not made
    said = str(error.value)
    assert 15 < len(said) < 700, said
    assert "\n" not in said
    assert "Traceback" not in said
    return said


def test_the_undamaged_ones_load(tmp_path: Path, target: DecoderConfig) -> None:
    """Else every test above would pass for the wrong reason."""
    for kind in KINDS:
        config, tensors = parts(kind)
        write(tmp_path / kind, config, tensors)
        formats.load(tmp_path / kind, target)
    legacy = tmp_path / "legacy"
    write(legacy, parts("eagle")[0], parts("eagle")[1])
    (legacy / "model.safetensors").unlink()
    torch.save(parts("eagle")[1], legacy / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    formats.load(legacy, target)
