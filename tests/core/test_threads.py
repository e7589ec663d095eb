"""How long the threads of matrix work spin while they wait for each other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "import spec_core, os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("asked", "got"),
    [({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_threads_spin_briefly_unless_the_reader_chose(asked: dict[str, str], got: str) -> None:
    free = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([sys.executable, "-c", SHOW], env=free | asked, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == got


THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PAGES = """
import spec_core, torch
held = torch.ones(32 << 20)
print(sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")))
"""


@pytest.mark.skipif(
    not THP.exists() or "[madvise]" not in THP.read_text(), reason="needs Linux that gives pages on request"
)
@pytest.mark.parametrize(("asked", "large"), [({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)])
def test_large_tensors_lie_in_large_pages_unless_the_reader_chose(asked: dict[str, str], large: bool) -> None:
    free = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run([sys.executable, "-c", PAGES], env=free | asked, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 64 << 10) == large
