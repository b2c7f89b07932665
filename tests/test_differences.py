"""Tests of differences between classifiers, as the experiments use them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from pipelines.common.differences import against, corrected_t, mcnemar, packed, unpacked


def masks(both: int, one: int, other: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array([both, one, other, neither])
    first, second = np.array([True, True, False, False]), np.array([True, False, True, False])
    return np.repeat(first, counts), np.repeat(second, counts)


def test_mcnemar_looks_at_samples_that_one_of_the_two_has_right() -> None:
    """Of 10 such samples all on one side: 2 / 2^10; samples that both or none have right do not count."""
    assert mcnemar(*masks(50, 10, 0, 7)) == pytest.approx(2 / 2**10)
    assert mcnemar(*masks(0, 0, 10, 0)) == pytest.approx(2 / 2**10)
    assert mcnemar(*masks(50, 5, 5, 7)) == 1.0
    assert mcnemar(*masks(50, 0, 0, 7)) == 1.0


def test_mcnemar_errs_as_seldom_as_it_says() -> None:
    rng = np.random.default_rng(0)
    found = [mcnemar(*(rng.random((2, 400)) < 0.9)) for _ in range(500)]
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.07


def test_the_corrected_t_test_is_more_careful_than_the_plain_one() -> None:
    differences = np.random.default_rng(1).normal(0.5, 1.0, 12)
    plain = ttest_1samp(differences, 0.0).pvalue
    assert corrected_t(differences, 1e-9) == pytest.approx(plain)
    assert corrected_t(differences, 0.5) > plain
    assert corrected_t(np.zeros(5), 0.3) == 1.0
    assert corrected_t(np.ones(5), 0.3) == 0.0
    assert corrected_t(np.ones(1), 0.3) == 1.0


def test_a_line_says_what_the_test_says() -> None:
    one, other = masks(80, 15, 1, 4)
    row = against("another", one, other)
    assert (row["verdict"], row["right alone"], row["other right alone"]) == ("better", 15, 1)
    assert row["error less, points"] == pytest.approx(14.0)
    assert against("another", other, one)["verdict"] == "worse"
    assert against("itself", one, one)["verdict"] == "no difference"


def test_masks_survive_a_record() -> None:
    right = np.random.default_rng(2).random(77) < 0.5
    assert np.array_equal(unpacked(packed(right), 77), right)
