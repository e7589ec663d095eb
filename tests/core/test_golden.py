"""The recorded numbers of other implementations hold, and the comparison notices when they do not."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from spec_core import golden

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests/golden"
FOLDERS = ("dflash_llama", "dflash_qwen3", "eagle1", "eagle2", "eagle3", "eagle3_speculators")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """All fixtures, to be spoiled."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "golden"))


def edit(folder: Path, name: str, change: Any) -> None:
    """Rewrite a JSON file of `folder` through `change`."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))


def shorten(folder: Path) -> None:
    """Keep one case and no extra runs: enough to be noticed, and quick."""

    def one(data: dict[str, Any]) -> None:
        data |= {"cases": data["cases"][:1], "extra_runs": [], "draft_config_variants": []}

    edit(folder, "expected.json", one)


def failures(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("FAIL")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_recorded_number_holds(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = golden.main([str(GOLDEN / folder)])
    out = capsys.readouterr().out
    assert (status, failures(out)) == (0, [])
    assert out.count("ok ") == len(out.splitlines()) - 1 >= 15


def test_every_recorded_tree_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.main([str(GOLDEN / "tree_cases.json")]) == 0
    assert capsys.readouterr().out.count("ok ") == 100


def test_the_command_covers_a_folder_of_folders_and_skips_models(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in FOLDERS[:-1]:
        (copy / name / "expected.json").unlink()
    assert golden.main([str(copy), str(copy / "target_llama")]) == 0
    out = capsys.readouterr().out
    assert "eagle3_speculators plain step 2 logits" in out
    assert "tree 19 leaf paths" in out


def spoil_weight(folder: Path, name: str) -> None:
    """Move one row of one weight by a little."""
    tensors = load_file(folder / "model.safetensors")
    tensors[name][3] += 0.02
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("folder", "weights", "name", "noticed"),
    [
        ("dflash_qwen3", "dflash_qwen3/draft", "layers.1.self_attn.k_norm.weight", "p0 step0 draft_logits"),
        ("dflash_llama", "target_llama", "model.layers.2.mlp.down_proj.weight", "p0 prefill target_hidden"),
        ("eagle1", "eagle2/draft", "fc.weight", "p0 step0 top10_logits"),
        ("eagle3", "eagle3/draft", "midlayer.hidden_norm.weight", "p0 default prefill root_logits"),
        (
            "eagle3_speculators",
            "eagle3_speculators/norm_before_fc",
            "input_norm.weight",
            "norm_before_fc step 0 logits",
        ),
    ],
)
def test_a_spoiled_weight_is_noticed(
    copy: Path, capsys: pytest.CaptureFixture[str], folder: str, weights: str, name: str, noticed: str
) -> None:
    if folder != "eagle3_speculators":
        shorten(copy / folder)
    spoil_weight(copy / weights, name)
    assert golden.main([str(copy / folder)]) == 1
    assert any(noticed in line for line in failures(capsys.readouterr().out))


def bump(values: list[int]) -> None:
    values[2] += 1


SPOILED_VALUES = [
    ("dflash_qwen3", "blocks", lambda case: bump(case["steps"][-1]["block_ids"])),
    ("dflash_qwen3", "target argmax", lambda case: bump(case["steps"][1]["target_argmax"])),
    ("dflash_qwen3", "accepted lengths", lambda case: bump(case["acceptance_lengths"])),
    ("dflash_qwen3", "greedy ids", lambda case: bump(case["greedy_ids"])),
    ("eagle1", "tokens of all trees", lambda case: bump(case["steps"][-1]["tokens"])),
    ("eagle1", "candidates", lambda case: bump(case["first_step_top10_token_table"][4])),
    ("eagle3", "ids", lambda case: bump(case["runs"]["small"]["eagenerate"]["output_ids"])),
    ("eagle3", "parents of all trees", lambda case: bump(case["runs"]["small"]["eagenerate"]["steps"][0]["parents"])),
    ("eagle3", "accepted paths", lambda case: bump(case["runs"]["small"]["eagenerate"]["steps"][2]["accepted_nodes"])),
    ("eagle3", "leaf paths", lambda case: bump(case["runs"]["default"]["first_tree"]["retrieve_indices"][3])),
    ("eagle3", "log-prob", lambda case: bump(case["runs"]["default"]["first_tree"]["cumulative_log_probs"])),
]


@pytest.mark.parametrize("folder", ["dflash_qwen3", "eagle1", "eagle3"])
def test_spoiled_values_are_noticed(copy: Path, capsys: pytest.CaptureFixture[str], folder: str) -> None:
    """Each of them is, and nothing else is."""
    shorten(copy / folder)
    spoiled = [(name, change) for where, name, change in SPOILED_VALUES if where == folder]
    edit(copy / folder, "expected.json", lambda data: [change(data["cases"][0]) for _, change in spoiled])
    assert golden.main([str(copy / folder)]) == 1
    lines = failures(capsys.readouterr().out)
    assert all(any(name in line for line in lines) for name, _ in spoiled), lines
    assert len(lines) == len(spoiled), lines


def test_a_spoiled_tree_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(copy, "tree_cases.json", lambda data: bump(data["cases"][8]["position_ids"]))
    assert golden.main([str(copy / "tree_cases.json")]) == 1
    assert [line.split(":")[0] for line in failures(capsys.readouterr().out)] == ["FAIL tree 8 positions"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda copy: (copy / "eagle1/expected.json").unlink(), "no expected.json"),
        (lambda copy: (copy / "eagle1/expected.json").write_text("{"), "cannot be read"),
        (lambda copy: edit(copy / "eagle1", "expected.json", lambda data: data.update(kind="other")), "not known"),
        (
            lambda copy: edit(copy / "eagle1", "expected.json", lambda data: data.pop("cases")),
            "lacks the field 'cases'",
        ),
        (lambda copy: (copy / "eagle1/expected.safetensors").write_bytes(b"no"), "golden: "),
        (lambda copy: (copy / "target_llama/model.safetensors").unlink(), "download the weights"),
    ],
    ids=["missing", "no JSON", "kind", "field", "tensors", "target"],
)
def test_what_cannot_be_read_is_said(copy: Path, capsys: pytest.CaptureFixture[str], spoil: Any, said: str) -> None:
    spoil(copy)
    assert golden.main([str(copy / "eagle1")]) == 2
    assert said in capsys.readouterr().err


def test_a_model_alone_is_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.main([str(GOLDEN / "target_llama")]) == 2
    assert "nothing to compare" in capsys.readouterr().err
