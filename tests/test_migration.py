"""The guide for those who come from elsewhere: its own code runs, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from test_estimators import blobs

import dmkl

PAGE = Path(__file__).parent.parent / "dmkl/docs/guide/coming-from.md"


def test_the_code_of_the_page_runs() -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    X, y = blobs(classes=2)
    X_new, truth = blobs(classes=2, seed=1)
    names: dict[str, Any] = {"np": np, "dmkl": dmkl, "X": X, "y": 2 * y - 1, "X_new": X_new}
    found = []
    for block in blocks:
        exec(block, names)
        found.append(names["labels"])
        assert np.mean(names["labels"] == 2 * truth - 1) > 0.75
    assert np.array_equal(found[0], found[1])
    average = sum(rbf_kernel(X_new, X, gamma=gamma) for gamma in names["gammas"]) / 3
    to_new = np.stack([rbf_kernel(X_new, X, gamma=gamma) for gamma in names["gammas"]], axis=2)
    theirs, ours = names["theirs"].decision_function(average), names["ours"].decision_function(to_new)
    np.testing.assert_allclose(ours, theirs, atol=0.05)
    same = dmkl.L1MKLClassifier(kernels="precomputed", C=10).fit(names["stack"], names["y"])
    np.testing.assert_allclose(names["weights"], same.kernel_weights_, atol=0.03)  # a gamma of 0.2 is a width of 1.5811
