"""Who may import whom. The wall is a table; one test reads it against every file we have, one
loads the torch-free modules for real, and planted violations show that both can fail.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("models", "spec_core", "pages", "app")
TENSORS = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "llvmlite", "models")
RUNNING = tuple(
    f"spec_core.{name}"
    for name in (
        "decode",
        "target",
        "verify",
        "methods",
        "measure",
        "jobs",
        "worker",
        "cluster",
        "replicas",
        "training",
        "bench",
        "experiment",
    )
)


@dataclass(frozen=True)
class Rule:
    """What the files under a path must not import, or, if `allow` is given, the little they may."""

    path: str
    why: str
    forbid: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None  # the standard library is always allowed
    inside_functions: bool = False  # True: the ban holds there too
    except_for: str | None = None

    def covers(self, file: str) -> bool:
        return file != self.except_for and (file == self.path or file.startswith(f"{self.path}/"))

    def breaks(self, name: str) -> bool:
        if self.allow is None:
            return under(name, self.forbid)
        return not under(name, self.allow) and name.split(".")[0] not in sys.stdlib_module_names


WALL = (
    Rule(
        "models",
        "the networks know nothing of decoding or of the app",
        forbid=("spec_core", "pages", "app", "streamlit", "plotly"),
        inside_functions=True,
    ),
    Rule(
        "spec_core",
        "the algorithm knows nothing of the app",
        forbid=("pages", "app", "streamlit", "plotly"),
        inside_functions=True,
    ),
    Rule(
        "spec_core/trace.py",
        "a trace is read where no torch is installed",
        allow=("msgspec",),
        inside_functions=True,
    ),
    Rule(
        "spec_core/measurement.py",
        "a measurement is read where no torch is installed",
        allow=("msgspec", "spec_core.contract", "spec_core.report", "spec_core.trace"),
        inside_functions=True,
    ),
    Rule(
        "spec_core/draws.py",
        "counted draws are read, and drawn anew, where no torch is",
        allow=("msgspec", "spec_core.trace"),
        inside_functions=True,
    ),
    Rule(
        "spec_core/contract.py",
        "method cards and knobs are shown where no torch is installed",
        allow=("msgspec", "spec_core.trace"),
    ),
    Rule(
        "spec_core/methods",
        "listing the methods costs no torch: networks are imported inside build",
        forbid=(*TENSORS, "spec_core.target", "spec_core.training"),
    ),
    Rule(
        "pages",
        "a page shows a trace; only parts/source.py starts runs",
        forbid=(*TENSORS, *RUNNING),
        inside_functions=True,
        except_for="pages/parts/source.py",
    ),
    Rule(
        "pages/parts/source.py",
        "a recorded trace opens without torch: live things are imported when a run starts",
        forbid=(*TENSORS, *RUNNING),
    ),
    Rule(
        "pages/pictures",
        "pictures are pure: trace in, scene out",
        allow=("spec_core.trace", "pages.pictures"),
        inside_functions=True,
    ),
    Rule(
        "app.py",
        "the entry script sets up navigation, nothing else",
        forbid=(*TENSORS, *RUNNING),
        inside_functions=True,
    ),
)


def under(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def imports(tree: ast.AST, package: str, lazy: bool = False) -> Iterator[tuple[str, bool]]:
    """Every imported name in full, and whether it is imported only when a function runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, package)
            yield from ((f"{origin}.{alias.name}", lazy) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            # Never executed; its else branch is.
            yield from imports(ast.Module(node.orelse, []), package, lazy)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, package, lazy or function)


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module a `from … import` names; one dot more climbs one package higher."""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def violations(root: Path) -> list[str]:
    """One line per import that breaks a rule of the wall."""
    found: list[str] = []
    for path in sorted(python_files(root)):
        file = path.relative_to(root).as_posix()
        package = ".".join(path.relative_to(root).parent.parts)
        names = list(imports(ast.parse(path.read_text(encoding="utf-8")), package))
        for rule in (rule for rule in WALL if rule.covers(file)):
            found += [
                f"{file} imports {name}: {rule.why}"
                for name, lazy in names
                if rule.breaks(name) and (rule.inside_functions or not lazy)
            ]
    return found


def python_files(root: Path) -> Iterator[Path]:
    for name in OURS:
        yield from (root / name).rglob("*.py")
        yield from root.glob(f"{name}.py")


def torch_free(root: Path) -> list[str]:
    """The modules that must load where neither torch nor streamlit is installed."""
    files = [root / f"spec_core/{name}.py" for name in ("trace", "measurement", "draws", "contract")]
    files += sorted((root / "spec_core/methods").glob("*.py"))
    files += sorted((root / "pages/pictures").glob("*.py"))
    modules = [path.relative_to(root).with_suffix("").parts for path in files if path.exists()]
    return [".".join(parts).removesuffix(".__init__") for parts in modules]


def heavy_loaded_by(root: Path, modules: list[str]) -> str:
    """Import the modules in a fresh interpreter and say which heavy packages came with them."""
    code = "import sys, importlib\n"
    code += f"for name in {modules!r}: importlib.import_module(name)\n"
    code += "print(*sorted({'torch', 'streamlit', 'transformers'} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_no_file_breaks_the_wall() -> None:
    assert not violations(ROOT), "\n".join(violations(ROOT))


def test_every_module_has_a_docstring() -> None:
    files = [path for path in python_files(ROOT) if path.stat().st_size]
    silent = [path for path in files if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert not silent


def test_the_map_names_tests_that_exist() -> None:
    table = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", table)
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_cards_methods_and_pictures_load_without_torch_or_streamlit() -> None:
    assert heavy_loaded_by(ROOT, torch_free(ROOT)) == ""


PLANTED = {
    "models/decoder.py": "from spec_core import trace",
    "models/load.py": "def load():\n    import spec_core.trace",
    "spec_core/bench.py": "def show():\n    import streamlit",
    "spec_core/trace.py": "import numpy",
    "spec_core/measurement.py": "def load():\n    import torch",
    "spec_core/contract.py": "from spec_core.target import LoadedTarget",
    "spec_core/methods/eagle.py": "try:\n    from torch import nn\nexcept ImportError: ...",
    "spec_core/methods/lookup.py": "from models import heads",
    "spec_core/methods/dflash.py": "class Knobs:\n    import torch",
    "pages/step.py": "def run():\n    from spec_core.decode import decode",
    "pages/parts/source.py": "from spec_core.methods import plain",
    "pages/pictures/tree.py": "from pages.parts import player",
    "pages/pictures/tape.py": "def draw():\n    import streamlit as st",
    "app.py": "import models",
}
INNOCENT = {
    "spec_core/methods/eagle3.py": "def build():\n    import torch\n    from models import heads",
    "spec_core/methods/plain.py": "from spec_core.contract import Method\nimport fractions",
    "spec_core/contract.py": ("import typing\nfrom .trace import Step\nif typing.TYPE_CHECKING:\n    import torch"),
    "pages/parts/source.py": "def start():\n    from spec_core.decode import decode",
    "pages/pictures/tree.py": "from spec_core.trace import Step\nfrom . import tape\nimport math",
}


def plant(root: Path, file: str, code: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")


@pytest.mark.parametrize("file", PLANTED)
def test_a_planted_violation_is_caught(tmp_path: Path, file: str) -> None:
    plant(tmp_path, file, PLANTED[file])
    assert violations(tmp_path)[0].startswith(f"{file} imports ")


@pytest.mark.parametrize("file", INNOCENT)
def test_an_innocent_import_is_not(tmp_path: Path, file: str) -> None:
    plant(tmp_path, file, INNOCENT[file])
    assert violations(tmp_path) == []


def test_a_smuggled_torch_is_noticed(tmp_path: Path) -> None:
    plant(tmp_path, "torch.py", "")  # a stand-in, found first: the real one takes seconds
    plant(tmp_path, "spec_core/methods/sly.py", "__import__('tor' + 'ch')")
    assert violations(tmp_path) == []  # reading alone cannot see it
    assert heavy_loaded_by(tmp_path, torch_free(tmp_path)) == "torch"
