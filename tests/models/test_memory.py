"""How much memory there is: the least of what the system has and what the container may take."""

from pathlib import Path

import pytest
import torch

from models import memory
from models.memory import ENDLESS, free_bytes, free_in_container


def test_a_containers_own_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert free_in_container() == ENDLESS
    for name, text in {
        "current": "300",
        "max": "1000",
        "stat": "anon 100\ninactive_file 150\nactive_file 50\n",
    }.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_in_container() == 900
    (tmp_path / "memory.max").write_text("max\n")
    assert free_in_container() == ENDLESS


def test_the_least_of_both_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_in_system", lambda: 5e9)
    monkeypatch.setattr(memory, "free_in_container", lambda: 2e9)
    assert free_bytes(torch.device("cpu")) == 2e9


def test_what_pytorch_keeps_for_itself_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4e9, 24e9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 18e9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1e9)
    assert free_bytes(torch.device("cuda")) == 21e9
