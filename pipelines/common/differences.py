"""Whether two classifiers differ: on the same test samples, or over the same repeated splits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, t

from pipelines.common.experiment import Row

Mask = NDArray[np.bool_]
SURE = 0.05  # a smaller p-value is a difference


def mcnemar(one: Mask, other: Mask) -> float:
    """The p-value of McNemar's exact test that both are right equally often.

    Parameters
    ----------
    one, other : arrays (n,)
        Which samples each of the two has right.
    """
    alone = int((one & ~other).sum()), int((other & ~one).sum())
    return float(binomtest(alone[0], sum(alone)).pvalue) if sum(alone) else 1.0


def corrected_t(differences: NDArray[np.float64], test_share: float) -> float:
    """The p-value of the t test that the mean difference over repeated splits is zero, with the correction of Nadeau
    and Bengio (2003): training sets overlap, so the variance is 1 / splits + test / training times that of a split.

    Parameters
    ----------
    differences : array (splits,)
        Of the scores, split by split.
    test_share : float
        The share of the samples that a split holds out.
    """
    count, mean = len(differences), float(differences.mean())
    spread = float(differences.std(ddof=1)) if count > 1 else np.inf
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    error = spread * np.sqrt(1 / count + test_share / (1 - test_share))
    return float(2 * t.sf(abs(mean) / error, count - 1)) if count > 1 else 1.0


def against(name: str, one: Mask, other: Mask) -> Row:
    """A line of a table: how one classifier compares with another one, of this name, on the same samples."""
    p = mcnemar(one, other)
    better = int(one.sum()) - int(other.sum())
    return {
        "against": name,
        "error less, points": 100 * better / len(one),
        "right alone": int((one & ~other).sum()),
        "other right alone": int((other & ~one).sum()),
        "McNemar's p": p,
        "verdict": "no difference" if p >= SURE else "better" if better > 0 else "worse",
    }


def packed(right: Mask) -> str:
    """A mask as text, for a record."""
    return np.packbits(right).tobytes().hex()


def unpacked(text: str, count: int) -> Mask:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=count).astype(bool)
