"""The two presets: published values are the method's own, this device's come from a file that must fit the methods."""

import subprocess
import sys
from pathlib import Path

import pytest

from spec_core.contract import KnobError
from spec_core.methods import discover
from spec_core.presets import FILE, Measured, preset, read, write

METHODS = discover()


@pytest.mark.parametrize("key", METHODS)
def test_published_is_what_the_card_says(key: str) -> None:
    assert preset(METHODS[key], "published") == METHODS[key].published


@pytest.mark.parametrize("key", METHODS)
def test_the_shipped_file_fits_every_method(key: str) -> None:
    stated = read().presets.get(key, {})
    assert preset(METHODS[key], "this device") == METHODS[key].published | stated


@pytest.mark.parametrize("key", METHODS)
def test_every_setting_worth_timing_is_one_the_method_takes(key: str) -> None:
    method = METHODS[key]
    settled = [method.settle(knobs) for knobs in method.sweep]
    assert bool(settled) == bool(method.knobs)
    assert all(settled.count(one) == 1 for one in settled)


def test_new_measurements_leave_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "presets.json"
    write(Measured("old", "2026-01-01", {"lookup": {"tokens": 2}, "eagle": {"depth": 3}}), path)
    write(Measured("old", "2026-02-02", {"lookup": {"tokens": 6}}), path)
    assert preset(METHODS["lookup"], "this device", path) == {"ngram": 3, "tokens": 6}
    assert preset(METHODS["eagle"], "this device", path)["depth"] == 3
    assert preset(METHODS["dflash"], "this device", path) == METHODS["dflash"].published
    assert (read(path).device, read(path).date) == ("old", "2026-02-02")


def test_what_another_device_measured_is_not_kept_under_a_new_ones_name(tmp_path: Path) -> None:
    path = tmp_path / "presets.json"
    write(Measured("old", "2026-01-01", {"lookup": {"tokens": 2}, "eagle": {"depth": 3}}), path)
    write(Measured("new", "2026-02-02", {"lookup": {"tokens": 6}}), path)
    assert read(path).presets == {"lookup": {"tokens": 6}}
    assert read(path).device == "new"
    assert preset(METHODS["eagle"], "this device", path) == METHODS["eagle"].published


def test_what_a_processor_found_fastest_says_nothing_of_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "presets.json"
    write(Measured("old", "2026-01-01", {"eagle": {"depth": 3}}), path)
    assert preset(METHODS["eagle"], "this device", path, kind="cuda") == METHODS["eagle"].published
    write(Measured("gpu", "2026-01-02", {"eagle": {"depth": 4}}, kind="cuda"), path)
    assert preset(METHODS["eagle"], "this device", path, kind="cuda")["depth"] == 4
    assert preset(METHODS["eagle"], "this device", path) == METHODS["eagle"].published


def test_what_was_measured_with_another_target_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "presets.json"
    write(Measured("d", "2026-01-01", {"eagle": {"depth": 3}}, target="small"), path)
    write(Measured("d", "2026-01-01", {"lookup": {"tokens": 6}}, target="large"), path)
    assert read(path).presets == {"lookup": {"tokens": 6}}


def test_a_file_for_other_knobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "presets.json"
    write(Measured("d", "2026-01-01", {"lookup": {"width": 2}}), path)
    with pytest.raises(KnobError, match="no knob 'width'"):
        preset(METHODS["lookup"], "this device", path)


def test_presets_and_reports_are_read_without_torch() -> None:
    code = "import sys, spec_core.presets, spec_core.report, spec_core.prompts; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=FILE.parent.parent).returncode == 0
