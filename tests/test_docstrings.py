"""Docstrings of estimators and of `tune`: complete, true, and with examples that run."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import re
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from test_estimators import blobs

import dmkl
from dmkl.estimators import ESTIMATORS, KernelBank, KernelClassifier, KernelEstimator, KernelRegressor
from dmkl.estimators.base import WeightedClassifier, WeightedRegressor

PUBLIC = (*ESTIMATORS, KernelBank)
BASES = (KernelEstimator, KernelClassifier, KernelRegressor, WeightedClassifier, WeightedRegressor)
HEAD = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)
EXAMPLES = {thing.__name__: thing for thing in (*PUBLIC, dmkl.tune, dmkl.structured)}


def sections(thing: Any) -> dict[str, str]:
    """The numpydoc sections of a docstring, the text before them as ''."""
    pieces = HEAD.split(inspect.getdoc(thing) or "")
    return {"": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}


def entries(text: str) -> dict[str, str]:
    """Names and types of a section of parameters or attributes."""
    found: dict[str, str] = {}
    for names, kind in re.findall(r"^(\w[\w, ]*) : (.*)$", text, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), kind)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    tests = doctest.DocTestFinder(recurse=False).find(EXAMPLES[name], name)
    assert sum(len(test.examples) for test in tests) >= 4
    for test in tests:
        test.globs = {}
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("estimator", [*PUBLIC, *BASES], ids=lambda estimator: estimator.__name__)
def test_every_parameter_is_described_with_its_default(estimator: Any) -> None:
    described = entries(sections(estimator)["Parameters"])
    fields = {field.name: field.default for field in dataclasses.fields(estimator)}
    assert set(described) == set(fields)
    for name, default in fields.items():
        assert f"default {inf(default)}" in described[name].replace("1e-3", "0.001"), name
    assert "<shared" not in (inspect.getdoc(estimator) or "")


def inf(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else str(default)


@pytest.mark.parametrize("estimator", PUBLIC, ids=lambda estimator: estimator.__name__)
def test_the_docstring_has_every_section_and_attribute(estimator: Any) -> None:
    found = sections(estimator)
    assert {"Parameters", "Attributes", "See Also", "Examples"} <= set(found)
    X, y = blobs()
    pyarrow = pytest.importorskip("pyarrow")
    fitted = estimator().fit(pyarrow.table({name: X[:, k] for k, name in enumerate("abcd")}), y)
    kept = {name for name in vars(fitted) if name.endswith("_")}
    assert set(entries(found["Attributes"])) == kept
    if estimator is KernelBank:
        return
    assert "Raises" in found
    assert re.search(r"^    +.*min .*$", found[""], re.MULTILINE), "the objective comes first"
    shape = entries(found["Attributes"])["kernel_weights_"]
    m = len(fitted.classes_) if is_classifier(fitted) else 1
    assert fitted.kernel_weights_.shape == (m, 3)
    assert shape == ("array of shape (1, s)" if is_regressor(fitted) else "array of shape (m, s)")


def test_methods_are_described() -> None:
    for cls in (*ESTIMATORS, *BASES):
        for name in {"fit", "predict", "decision_function"} & set(vars(cls)):
            found = sections(getattr(cls, name))
            assert {"Parameters", "Returns"} <= set(found), (cls, name)


def weights_of(estimator: Any, **constants: Any) -> np.ndarray:
    """Of two views with three kernels each."""
    X, y = blobs(n=120)
    views = {"first": [0, 1], "last": [2, 3]}
    return np.asarray(estimator(views=views, tol=1e-5, **constants).fit(X, y).kernel_weights_)


def test_C_and_ridge_of_spicy_mean_what_is_said() -> None:
    """A larger C uses fewer kernels, a larger ridge makes the weights more equal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 8))
    target = X[:, 0] - X[:, 1] + 0.3 * X[:, 2] + 0.5 * rng.normal(size=80)

    def weights(estimator: Any, **constants: Any) -> np.ndarray:
        y = target if is_regressor(estimator()) else target > 0
        model = estimator(kernels=[{"kernel": "linear"}], views={str(k): [k] for k in range(8)}, **constants)
        return np.asarray(model.fit(X, y).kernel_weights_[0])

    for estimator, *constants in ((dmkl.SpicyMKLClassifier, 0.05, 1.0, 4.0), (dmkl.SpicyMKLRegressor, 0.1, 4.0, 15.0)):
        counts = [(weights(estimator, C=C) > 0).sum() for C in constants]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1] >= 1
        largest = [d.max() / d.sum() for d in (weights(estimator, C=0.2, ridge=ridge) for ridge in (0.0, 1.0, 100.0))]
        assert largest == sorted(largest, reverse=True)


def test_weights_are_normalised_as_is_said() -> None:
    np.testing.assert_allclose(weights_of(dmkl.UniformMKLClassifier), 1 / 6)
    np.testing.assert_allclose(weights_of(dmkl.L1MKLClassifier).sum(axis=1), 1.0, rtol=1e-4)
    for p in (1.0, 1.5, 2.0):
        np.testing.assert_allclose((weights_of(dmkl.LpMKLClassifier, p=p) ** p).sum(axis=1), 1.0, rtol=1e-4)
    np.testing.assert_allclose(weights_of(dmkl.LpMKLClassifier, p=np.inf).max(axis=1), 1.0, rtol=1e-4)
    for estimator in (dmkl.SharedMKLClassifier, dmkl.ObscureClassifier):
        assert np.ptp(weights_of(estimator), axis=0).max() == 0
    np.testing.assert_allclose(weights_of(dmkl.SharedMKLClassifier).sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights_of(dmkl.MIKLClassifier).sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [cls for cls in ESTIMATORS if cls not in (dmkl.SpicyMKLClassifier, dmkl.SpicyMKLRegressor, dmkl.MIKLClassifier)],
    ids=lambda estimator: estimator.__name__,
)
def test_a_larger_C_fits_the_training_samples_more_closely(estimator: Any) -> None:
    X, y = blobs(n=80)
    models = [estimator(C=C, tol=1e-5).fit(X, y) for C in (0.01, 1.0, 100.0)]
    accuracies = [model.score(X, y) for model in models]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] < accuracies[-1]


@pytest.mark.parametrize("norm", ["1", "21;1", "21;2"])
def test_norm_and_lam_of_mikl_mean_what_is_said(norm: str) -> None:
    X, y = blobs(n=80)
    sizes = []
    for lam in (0.1, 1.0, 5.0):
        model = dmkl.MIKLClassifier(norm=norm, lam=lam, tol=1e-6).fit(X, y)
        coef = model.model_.coef.reshape(len(model.model_.samples), -1, 3)
        used = {"1": coef, "21;1": np.abs(coef).sum(axis=2), "21;2": np.abs(coef).sum(axis=0)}[norm]
        sizes.append((int((used != 0).sum()), float(np.abs(coef).sum())))
    assert sizes[0] > sizes[-1]
    assert sizes[0][0] >= sizes[-1][0]
