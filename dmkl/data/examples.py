"""Bundled examples: arrays by name, as `read_arrays` returns them, made without a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Array, Float64
from dmkl.data.readers import Arrays

EXAMPLES: Registry[Callable[[], Arrays]] = Registry("example")


def digits() -> Arrays:
    """The 1,797 handwritten digits of scikit-learn (8 x 8 pixels, 10 classes) in four views."""
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


def _profiles(images: Array) -> Float64:
    """Sums of ink over rows, columns and both diagonals: the position of the strokes, without their shape."""
    down = [np.trace(images, offset, axis1=1, axis2=2) for offset in range(-6, 7)]
    up = [np.trace(images[:, ::-1], offset, axis1=1, axis2=2) for offset in range(-6, 7)]
    return np.column_stack([images.sum(axis=2), images.sum(axis=1), *down, *up])


def _gradients(images: Array) -> Float64:
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
    length: Float64 = np.linalg.norm(blocks, axis=1, keepdims=True)
    return blocks / np.maximum(length, 1e-12)


def _fourier(images: Array) -> Float64:
    """Magnitudes of the lower two-dimensional frequencies: shape without position."""
    spectrum = np.abs(np.fft.fftshift(np.fft.fft2(images), axes=(1, 2)))
    # the spectrum of a real image is symmetric about its centre (4, 4), so half of it suffices
    return spectrum[:, 1:8, 4:8].reshape(len(images), -1)


def diabetes() -> Arrays:
    """442 patients: ten measurements, and the progress of the disease after one year (regression)."""
    from sklearn.datasets import load_diabetes

    bundle = load_diabetes()
    columns = {name: np.asarray(bundle.data[:, j]) for j, name in enumerate(bundle.feature_names)}
    return {**columns, "y": np.asarray(bundle.target, dtype=np.float64)}


EXAMPLES.register("digits", digits)
EXAMPLES.register("diabetes", diabetes)
