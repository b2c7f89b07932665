"""The docstrings of the Python interface: every parameter is described, and every example runs."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
from typing import Any

import pytest

import dmkl
from dmkl.problems import FORMULATIONS

PUBLIC = {name: getattr(dmkl, name) for name in ("Fit", "grid", "solve", "solve_path")}
PUBLIC |= {kind.__name__: kind for kind in FORMULATIONS.values() if kind.__module__.startswith("dmkl.problems.")}
everything = pytest.mark.parametrize("name", list(PUBLIC))


def parameters(thing: Any) -> list[str]:
    if dataclasses.is_dataclass(thing):
        return [field.name for field in dataclasses.fields(thing)]
    return list(inspect.signature(thing).parameters)


def sections(text: str) -> dict[str, str]:
    """The numpydoc sections by their title."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines[1:]) if line and set(line) == {"-"}]
    ends = [*heads[1:], len(lines)]
    return {lines[i]: "\n".join(lines[i + 2 : end]) for i, end in zip(heads, ends, strict=True)}


@everything
def test_every_parameter_is_described(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name])
    assert text
    found = sections(text)
    table = found["Attributes" if name == "Fit" else "Parameters"]
    heads = [line.partition(" : ")[0] for line in table.splitlines() if line and not line.startswith(" ")]
    described = [word.strip("* ") for head in heads for word in head.split(",")]
    assert described == parameters(PUBLIC[name])
    assert found["Examples"]
    if name not in ("Fit", "grid"):
        assert found["Raises"]


@everything
def test_the_examples_run(name: str) -> None:
    thing = PUBLIC[name]
    module = importlib.import_module(thing.__module__)
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(thing, name, module=module, globs={})
    assert sum(len(test.examples) for test in tests) >= 2
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert not runner.summarize(verbose=False).failed
