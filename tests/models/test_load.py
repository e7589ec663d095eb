"""Loading picks device and number type, knows every way an answer ends, and says what to do when it cannot."""

import json
from pathlib import Path

import pytest
import torch

from models import load
from models.formats import FormatError
from models.load import LoadError, load_network, load_target, pick_device, pick_dtype
from tests.toy import toy_drafter_folders, toy_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return toy_folder(tmp_path / "target")


def state_stop(folder: Path, name: str, value: object) -> None:
    path = folder / name
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | {"eos_token_id": value}))


def test_the_real_targets_answers_end_in_two_ways() -> None:
    model = load_target("smollm2-135m")
    assert model.tokenizer is not None
    vocab = model.tokenizer.hub.get_vocab()
    marks = {vocab[mark] for mark in ("<|im_end|>", "<|endoftext|>")}
    assert marks <= model.stops
    assert len(marks) == 2


@pytest.mark.parametrize(("config", "generation"), [(7, [8, 9]), ([7, 8], 9), ([7, 8, 9], None), (None, [7, 8, 9])])
def test_stops_are_the_union_of_what_every_file_says(folder: Path, config: object, generation: object) -> None:
    own = load_target(str(folder), "cpu").stops
    assert own == {0, 2}  # the tokenizer's <|endoftext|> and <|im_end|>
    state_stop(folder, "config.json", config)
    state_stop(folder, "generation_config.json", generation)
    assert load_target(str(folder), "cpu").stops == own | {7, 8, 9}


def test_a_device_is_picked_and_can_be_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAFTSCOPE_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device().type == "cpu"
    with pytest.raises(LoadError, match="no CUDA device can be used here: choose --device cpu"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device().type == "cuda"
    assert pick_device("cpu").type == "cpu"
    monkeypatch.setenv("DRAFTSCOPE_DEVICE", "cpu")
    assert pick_device().type == "cpu"
    assert pick_device("cuda").type == "cuda"


def test_exact_numbers_on_cpu_and_halves_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert pick_dtype(cuda) == torch.float16  # emulated, it would only be slow
    for native, half in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True, native=native: native)
        assert pick_dtype(cuda) == half
    assert pick_dtype(cpu) == torch.float32
    assert pick_dtype(cuda, "fp32") == torch.float32
    with pytest.raises(LoadError, match="'fp8': choose one of fp32, bf16, fp16"):
        pick_dtype(cpu, "fp8")
    monkeypatch.setenv("DRAFTSCOPE_DTYPE", "bf16")
    assert pick_dtype(cpu) == torch.bfloat16
    assert pick_dtype(cpu, "fp32") == torch.float32
    assert pick_dtype(cpu, "fewbits") == torch.float32
    with pytest.raises(LoadError, match="fewbits is for the processor"):
        pick_dtype(cuda, "fewbits")


def test_a_drafter_follows_its_target(folder: Path) -> None:
    model = load_target(str(folder), "cpu", "bf16")
    network = load_network(model, str(toy_drafter_folders(folder.parent)["eagle3"]))
    assert {weight.dtype for weight in network.module.parameters()} == {model.decoder.dtype} == {torch.bfloat16}
    assert network.module.d2t is not None
    assert network.module.d2t.dtype == torch.long


def test_a_missing_hub_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own client runs, in its offline mode: nothing leaves this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LoadError, match="'nobody/nothing' is no folder here .* or give the path of a folder"):
        load_target("nobody/nothing")


def test_the_hash_follows_the_weights(folder: Path, tmp_path: Path) -> None:
    one = load_target(str(folder), "cpu").hash
    assert load_target(str(toy_folder(tmp_path / "twin")), "cpu").hash == one
    assert load_target(str(toy_folder(tmp_path / "other", seed=5)), "cpu").hash != one


def test_a_target_whose_files_do_not_fit_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 65}))
    with pytest.raises(LoadError, match="target: weights and config do not fit: .*size mismatch"):
        load_target(str(folder), "cpu")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    with pytest.raises(LoadError, match=r"missing .*layers\.4"):
        load_target(str(folder), "cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FormatError, match="download the weights"):
        load_target(str(folder), "cpu")


def test_an_untied_config_without_a_head_is_no_silent_tie(folder: Path) -> None:
    """A tied file has no lm_head; an untied one that lost it must not be mistaken for it."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(LoadError, match=r"missing .*lm_head"):
        load_target(str(folder), "cpu")


def test_the_processor_has_a_name() -> None:
    assert load.cpu_name().endswith("cores")
