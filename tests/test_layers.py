"""Layers import one way only, and the command line starts without heavy imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmkl

PACKAGE = Path(dmkl.__file__).parent
LAYERS = (
    "version",
    "errors",
    "events",
    "_util",
    "config",
    "runtime",
    "data",
    "kernels",
    "store",
    "stack",
    "oracles",
    "problems",
    "solvers",
    "model",
    "tuning",
    "estimators",
    "report",
    "run",
    "cli",
)
ORDER = (*LAYERS, "__init__", "__main__")


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Layers a module imports, wherever in it; under TYPE_CHECKING too: types bind as much."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("dmkl."))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_earlier_layers(path: Path) -> None:
    here = ORDER.index(layer(path))
    for other in imported(path):
        assert ORDER.index(other) <= here, f"{path} imports from {other}"


def test_every_layer_is_known() -> None:
    found = {layer(path) for path in PACKAGE.rglob("*.py")}
    assert found == set(ORDER)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from dmkl.cli.main import main; main(['--help']);"
        "heavy = {'numpy', 'scipy', 'zarr', 'dask', 'distributed', 'numba', 'sklearn', 'rich'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Exit codes" in result.stdout
