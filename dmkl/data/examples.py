"""Bundled examples: arrays made on the spot, without a network, in the form `read_arrays` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.registry import Registry
from dmkl.data.readers.common import Arrays

EXAMPLES: Registry[Callable[[], Arrays]] = Registry("example")


def digits() -> Arrays:
    """The 1,797 handwritten digits of scikit-learn (8 x 8 pixels, 10 classes) seen in four ways."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    images = np.asarray(bundle.images, dtype=np.float64) / 16.0
    return {
        "X_pixels": images.reshape(len(images), -1),
        "X_profiles": _profiles(images),
        "X_gradients": _gradients(images),
        "X_fourier": _fourier(images),
        "y": np.asarray(bundle.target, dtype=np.int64),
    }


def _profiles(images: NDArray[Any]) -> NDArray[np.float64]:
    """Ink by row, by column and by both diagonals: where the strokes lie, not what they are."""
    down = [np.trace(images, offset, axis1=1, axis2=2) for offset in range(-6, 7)]
    up = [np.trace(images[:, ::-1], offset, axis1=1, axis2=2) for offset in range(-6, 7)]
    return np.column_stack([images.sum(axis=2), images.sum(axis=1), *down, *up])


def _gradients(images: NDArray[Any]) -> NDArray[np.float64]:
    """Histograms of 8 gradient directions, weighted by strength, over overlapping cells of 4 x 4 pixels."""
    bins = 8
    rise, run = np.gradient(images, axis=(1, 2))
    strength = np.hypot(rise, run)
    place = np.arctan2(rise, run) * (bins / (2 * np.pi)) % bins
    low = np.floor(place)
    share = place - low  # each gradient is shared between its two nearest directions
    cells = []
    for direction in range(bins):
        weight = np.where(low % bins == direction, 1 - share, 0) + np.where((low + 1) % bins == direction, share, 0)
        energy = strength * weight
        cells += [energy[:, r : r + 4, c : c + 4].sum(axis=(1, 2)) for r in (0, 2, 4) for c in (0, 2, 4)]
    blocks = np.column_stack(cells)
    length: NDArray[np.float64] = np.linalg.norm(blocks, axis=1, keepdims=True)
    return blocks / np.maximum(length, 1e-12)


def _fourier(images: NDArray[Any]) -> NDArray[np.float64]:
    """Magnitudes of the lower two-dimensional frequencies: shape without position."""
    spectrum = np.abs(np.fft.fftshift(np.fft.fft2(images), axes=(1, 2)))
    # a real image's spectrum is symmetric about its centre (4, 4): half of it says everything
    return spectrum[:, 1:8, 4:8].reshape(len(images), -1)


def diabetes() -> Arrays:
    """442 patients: ten measurements, and how far the illness had come a year later (regression)."""
    from sklearn.datasets import load_diabetes

    bundle = load_diabetes()
    columns = {name: np.asarray(bundle.data[:, j]) for j, name in enumerate(bundle.feature_names)}
    return {**columns, "y": np.asarray(bundle.target, dtype=np.float64)}


EXAMPLES.register("digits", digits)
EXAMPLES.register("diabetes", diabetes)
