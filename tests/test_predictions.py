"""What is kept of the held-out samples: scores, the reasons for a few of them, probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import three_classes

import dmkl
from dmkl.data import Dataset, Labels
from dmkl.errors import ConfigError, StoreError
from dmkl.model import (
    Model,
    calibrate,
    held_out_predictions,
    load_calibration,
    load_predictions,
    make_model,
    save_predictions,
)
from dmkl.model.predictions import contributions, explained_outputs, mistakes
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore


@pytest.fixture(scope="module")
def model(store: KernelStore) -> Model:
    return make_model(store, dmkl.solve(open_stack(store.path), store.labels, dmkl.VSKL(q=2, C=5.0)))


@pytest.fixture(scope="module")
def new() -> Dataset:
    return three_classes(90, seed=8)


def test_contributions_add_up_to_the_score(model: Model, new: Dataset) -> None:
    scores = model.decision(new, Local(1))
    added, intercept = contributions(model, new, scores, Local(2))
    assert added.shape == (new.n, len(model.bank))
    np.testing.assert_allclose(added.sum(axis=1) + intercept, scores.max(axis=1), rtol=1e-9)
    unused = ~model.weights.any(axis=0)
    assert not added[:, unused].any()


def test_of_two_classes_the_reasons_speak_for_the_one_that_won(store: KernelStore, new: Dataset) -> None:
    assert store.labels is not None
    two = Labels("binary", (store.labels.values > 0).astype(np.int64), ("no", "yes"))
    model = make_model(store, dmkl.solve(open_stack(store.path), two, dmkl.L1MKL(C=1.0)))
    scores = model.decision(new, Local(1))
    added, intercept = contributions(model, new, scores, Local(1))
    np.testing.assert_allclose(added.sum(axis=1) + intercept, np.abs(scores[:, 0]), rtol=1e-9)
    assert {-1.0, 1.0} == set(explained_outputs(model, scores)[1])


def test_what_is_kept_comes_back(model: Model, new: Dataset, tmp_path: Path) -> None:
    scores = model.decision(new, Local(1))
    kept = held_out_predictions(model, new, scores, Local(1))
    save_predictions(tmp_path / "p.npz", kept)
    again = load_predictions(tmp_path / "p.npz", model)
    np.testing.assert_allclose(again.scores, scores, rtol=1e-6)
    assert (again.truth.task, again.truth.classes) == ("multiclass", model.classes)
    assert again.explained.outputs == tuple(model.classes[k] for k in scores[kept.explained.samples].argmax(axis=1))
    wrong = mistakes(model, scores, kept.truth)
    assert new.labels is not None
    assert np.array_equal(wrong, scores.argmax(axis=1) != new.labels.values)
    assert 0 < wrong[kept.explained.samples].sum() < len(kept.explained.samples)
    (tmp_path / "p.npz").write_bytes(b"PK")
    with pytest.raises(StoreError, match="not readable"):
        load_predictions(tmp_path / "p.npz", model)


def test_rows_are_those_of_the_data() -> None:
    data = three_classes(30)
    held = np.array([3, 8, 20])
    train, test = data.train_test(np.setdiff1d(np.arange(30), held), held)
    assert test.rows is not None
    assert np.array_equal(test.take([2, 0]).rows, [20, 3])
    assert train.rows is None


def drawn(n: int, slope: float, offset: float, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """Scores whose labels follow a known sigmoid."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 1))
    inside = rng.random(n) < 1 / (1 + np.exp(-(slope * scores[:, 0] + offset)))
    return scores, Labels("binary", inside.astype(np.int64), ("a", "b"))


def test_a_known_sigmoid_is_found() -> None:
    found = calibrate(*drawn(200_000, 3.0, -1.0))
    assert (found.slope[0], found.offset[0]) == pytest.approx((3.0, -1.0), abs=0.06)
    assert found.samples == 200_000
    np.testing.assert_allclose(found.probabilities(np.array([[1 / 3], [1e5]])), [[0.5, 0.5], [0, 1]], atol=0.02)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_scores_does_not_matter(scale: float) -> None:
    scores, truth = drawn(500, 2.0, 0.5)
    plain, scaled = calibrate(scores, truth), calibrate(scores * scale, truth)
    np.testing.assert_allclose(scaled.probabilities(scores * scale), plain.probabilities(scores), atol=1e-6)


def test_separable_scores_and_rare_classes_stay_finite() -> None:
    scores = np.array([[9.0, 0.0, -9.0], [-9.0, 9.0, -8.0], [8.0, 1.0, -9.0], [-8.0, 8.0, 0.5], [7.0, -7.0, -7.0]])
    truth = Labels("multiclass", np.array([0, 1, 0, 1, 0]), ("a", "b", "never"))
    found = calibrate(scores, truth)
    chances = found.probabilities(scores)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert np.isfinite(chances).all()
    assert all(slope > 0 for slope in found.slope)
    assert np.array_equal(chances.argmax(axis=1), truth.values)


def test_a_calibration_is_kept_as_text(tmp_path: Path) -> None:
    found = calibrate(*drawn(100, 1.0, 0.0))
    found.save(tmp_path / "calibration.json")
    assert load_calibration(tmp_path / "calibration.json", "binary", 1) == found
    with pytest.raises(ConfigError, match="held-out"):
        load_calibration(tmp_path / "none.json", "binary", 1)
