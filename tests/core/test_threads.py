"""How long the threads of matrix work spin while they wait for each other, and in what pages weights lie."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize(("asked", "got"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_weights_lie_in_large_pages_unless_the_reader_chose(asked: dict[str, str], got: str) -> None:
    """Whether the system has such pages left is its own affair."""
    free = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    show = "import spec_core, os; print(os.environ['THP_MEM_ALLOC_ENABLE'])"
    done = subprocess.run([sys.executable, "-c", show], env=free | asked, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == got
