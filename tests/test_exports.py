"""The names that `import dmkl` offers: derived from the registries, and imported only when they are used."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import pytest

import dmkl
from dmkl.estimators import ESTIMATORS
from dmkl.problems import FORMULATIONS

CODE = """
import sys
import dmkl
heavy = {"numpy", "scipy", "zarr", "dask", "numba", "sklearn"} & set(sys.modules)
assert not heavy, heavy
"""


def test_every_formulation_and_estimator_is_exported() -> None:
    for cls in (*FORMULATIONS.values(), *ESTIMATORS):
        assert getattr(dmkl, cls.__name__) is cls
        assert cls.__name__ in dmkl.__all__
        assert cls.__name__ in dir(dmkl)


def test_every_public_name_can_be_imported() -> None:
    names: dict[str, object] = {}
    exec("from dmkl import *", names)
    assert set(dmkl.__all__) <= set(names)
    for name in dmkl.__all__:
        assert getattr(dmkl, name) is names[name]
    assert {"Fit", "KernelStack", "Tuned", "VSKL", "VSKLClassifier", "grid", "repair", "solve", "tune"} <= set(names)


def test_other_names_are_refused() -> None:
    for name in ("Nothing", "nothing", "_nothing"):
        with pytest.raises(AttributeError, match=f"module 'dmkl' has no attribute '{name}'"):
            getattr(dmkl, name)


def test_an_added_formulation_is_public_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Added:
        C: float = 1.0

    monkeypatch.setattr(FORMULATIONS, "_entries", {**FORMULATIONS._entries, "added": Added})
    assert dmkl.Added is Added
    monkeypatch.delattr(dmkl, "Added")
    assert "Added" in dmkl.__all__


def test_importing_dmkl_imports_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_formulations_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(dmkl.VSKL(q=2.0, C=3.0))) == dmkl.VSKL(q=2.0, C=3.0)
