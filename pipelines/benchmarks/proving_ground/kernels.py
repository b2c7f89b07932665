"""The kernels of the proving ground: banks over samples, and stacks of them in memory, stored or computed.

A bank lists kernels with their groups. Each kernel is a function without arguments, so that a stack is filled kernel by
kernel. All kernels of the banks have mean diagonal 1 unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.stack import KernelStack, open_stack
from dmkl.store import build_store
from pipelines.benchmarks.proving_ground.samples import Samples
from pipelines.common.random_kernels import gaussians

Array = NDArray[Any]
Kernel = tuple[str, Callable[[], Array]]  # its group, its values (n, n)
Bank = Callable[[Samples, np.random.Generator], list[Kernel]]

WIDTHS = (0.3, 1.0, 3.0)  # times the median distance
MEDIAN_OF = 1000  # samples
BLOCKS = 4  # of the columns of data with one view
LARGEST, SMALLEST = 1e6, 1e-6  # of "mixed" scales
A_FEATURE = {"linear-feature": 1, "gauss-feature": 2}  # kernels
ROOM = 1.5e9  # bytes of banks that have kernels of every feature
MOST = 3e9  # bytes of any bank
LARGE = 3000  # samples from which Gaussians are computed in single precision


# --- kernels of features


def linear(X: Array) -> Array:
    return unit(X @ X.T)


def power(X: Array, degree: int) -> Array:
    return np.asarray((X @ X.T + 1.0) ** degree)


def polynomial(X: Array, degree: int) -> Array:
    return unit((X @ X.T / X.shape[1] + 1.0) ** degree)


def gaussian(X: Array, width: float) -> Array:
    """exp(-d^2 / (2 w^2 median of d^2))."""
    X = X.astype(np.float32 if len(X) > LARGE else np.float64)
    D = squared(X)
    D *= X.dtype.type(-0.5 / (width**2 * middle(X)))
    return np.exp(D, out=D)


def exponential(D: Array, width: float) -> Array:
    """exp(-D / (w mean of D)) of distances."""
    return np.asarray(np.exp(-D / (width * D.mean())))


def sigmoid(X: Array) -> Array:
    return np.asarray(np.tanh(X @ X.T / X.shape[1] - 0.5))


def negative_distance(X: Array) -> Array:
    return np.asarray(-np.sqrt(squared(X) / middle(X)))


def hat(X: Array) -> Array:
    return gaussian(X, 1.0) - 0.8 * gaussian(X, 0.3)


def uneven(X: Array, widths: Array, transposed: bool = False) -> Array:
    K = np.exp(-squared(X) / (2 * middle(X) * widths[:, None] ** 2))
    return np.ascontiguousarray(K.T) if transposed else np.asarray(K)


def squared(X: Array) -> Array:
    """Squared distances, exactly symmetric and zero on the diagonal."""
    norms = np.einsum("ij,ij->i", X, X)
    D = X @ X.T
    D *= -2.0
    D += norms[:, None]
    D += norms
    np.maximum(D, 0.0, out=D)
    np.fill_diagonal(D, 0.0)
    return np.asarray(D)


def middle(X: Array) -> float:
    """The median squared distance between two different ones of a thousand samples, 1 if most are the same."""
    D = squared(X[:MEDIAN_OF])[np.triu_indices(min(len(X), MEDIAN_OF), 1)]
    return float(np.median(D)) or float(D.mean()) or 1.0


def unit(K: Array) -> Array:
    """Mean diagonal 1, if the diagonal is not zero."""
    mean = np.abs(K.diagonal()).mean()
    return np.asarray(K / mean if mean > 0 else K)


# --- banks


def views_of(samples: Samples) -> dict[str, Array]:
    """The views, or four blocks of columns where there is only one."""
    if len(samples.views) > 1:
        return samples.views
    parts = np.array_split(samples.X, min(BLOCKS, samples.X.shape[1]), axis=1)
    return {f"block{k}": part for k, part in enumerate(parts)}


def linear_feature(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """A kernel a feature, each its own group."""
    return [(f"f{j}", partial(linear, x[:, None])) for j, x in enumerate(samples.X.T)]


def linear_view(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    return [(key, partial(linear, X)) for key, X in views_of(samples).items()]


def poly_view(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Degrees 1 to 3 of a view, a group a view."""
    return [(key, partial(polynomial, X, degree)) for key, X in views_of(samples).items() for degree in (1, 2, 3)]


def poly_raw(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Polynomials that are not scaled, of features of deviations from 1 to 100: values from 1 to 1e15."""
    X = samples.X * np.geomspace(1.0, 100.0, samples.X.shape[1])
    return [(f"d{degree}", partial(power, X, degree)) for degree in (1, 2, 3)]


def gauss_view(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Three widths of a view, a group a view."""
    if samples.distances:
        return [(key, partial(exponential, D, width)) for key, D in samples.views.items() for width in WIDTHS]
    return [(key, partial(gaussian, X, width)) for key, X in views_of(samples).items() for width in WIDTHS]


def gauss_whole(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """exp(-d^2 / (0.3 median)) and exp(-d^2 / median) of every view and of all features together."""
    views = views_of(samples) | {"whole": samples.X}
    return [(key, partial(gaussian, X, width)) for key, X in views.items() for width in (0.15**0.5, 0.5**0.5)]


def gauss_two(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Two Gaussians in all, where n is large."""
    return [("x", partial(gaussian, samples.X, width)) for width in (0.5, 1.0)]


def gauss_feature(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Two widths on each feature, a group a feature."""
    return [(f"f{j}", partial(gaussian, x[:, None], width)) for j, x in enumerate(samples.X.T) for width in (0.5, 2.0)]


def subsets(count: int) -> Bank:
    """So many Gaussians of random widths on random subsets of the features."""

    def bank(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
        made = gaussians(samples.X.shape[1], count, rng)
        return [(f"g{a % 10}", partial(one.matrix, samples.X, samples.X)) for a, one in enumerate(made)]

    return bank


def mixed(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """A linear, a quadratic and a Gaussian kernel of each view, a group a kind."""
    found: list[Kernel] = []
    for X in views_of(samples).values():
        found.append(("linear", partial(linear, X)))
        found.append(("quadratic", partial(polynomial, X, 2)))
        found.append(("gaussian", partial(gaussian, X, 1.0)))
    return found


def lowrank(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Precomputed kernels of ranks 1 to 5 of some features, and as many of random directions."""
    found: list[Kernel] = []
    for rank in range(1, 6):
        some = samples.X[:, rng.integers(0, samples.X.shape[1], rank)]
        found.append((f"r{rank}", partial(linear, some)))
        found.append((f"r{rank}", partial(linear, rng.normal(size=(samples.n, rank)))))
    return found


def one(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """A single kernel: nothing to choose."""
    return [("x", partial(gaussian, samples.X, 1.0))]


def duplicates(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Every kernel three times: twice in its group, once in the next one."""
    kernels = mixed(samples, rng)[:6]
    groups = list(dict.fromkeys(group for group, _ in kernels))
    again = [(groups[(groups.index(group) + 1) % len(groups)], make) for group, make in kernels]
    return [*kernels, *kernels, *again]


def with_zero(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """A zero kernel inside a group, and one that is a group of its own."""
    kernels, nothing = gauss_view(samples, rng), partial(np.zeros, (samples.n, samples.n))
    return [*kernels, (kernels[0][0], nothing), ("nothing", nothing)]


def with_identity(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """The identity fits every labelling; the kernel of ones does nothing that an intercept does not."""
    ones = partial(np.ones, (samples.n, samples.n))
    return [*linear_view(samples, rng), ("identity", partial(np.eye, samples.n)), ("ones", ones)]


def indefinite(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Sigmoids, negative distances and differences of Gaussians."""
    found: list[Kernel] = []
    for key, X in views_of(samples).items():
        found += [(key, partial(function, X)) for function in (sigmoid, negative_distance, hat)]
    return found


def nonsymmetric(samples: Samples, rng: np.random.Generator) -> list[Kernel]:
    """Gaussians whose width depends on the first sample, and their transposes."""
    found: list[Kernel] = []
    for key, X in views_of(samples).items():
        widths = rng.uniform(0.5, 2.0, samples.n)
        found.append((key, partial(uneven, X, widths)))
        found.append((key, partial(uneven, X, widths, transposed=True)))
    return found


BANKS: dict[str, Bank] = {
    "linear-feature": linear_feature,
    "linear-view": linear_view,
    "poly-view": poly_view,
    "poly-raw": poly_raw,
    "gauss-view": gauss_view,
    "gauss-whole": gauss_whole,
    "gauss-two": gauss_two,
    "gauss-feature": gauss_feature,
    "subsets30": subsets(30),
    "subsets300": subsets(300),
    "subsets1000": subsets(1000),
    "subsets3000": subsets(3000),
    "mixed": mixed,
    "lowrank": lowrank,
    "one": one,
    "duplicates": duplicates,
    "zero": with_zero,
    "identity": with_identity,
    "indefinite": indefinite,
    "nonsymmetric": nonsymmetric,
}


# --- stacks


def scales(scale: float | str, s: int) -> Array:
    """(s,) the factor of each kernel: one number for all, or "mixed", from 1e-6 to 1e6 in a fixed disorder."""
    if scale != "mixed":
        return np.full(s, float(scale))
    return np.random.default_rng(0).permutation(np.geomspace(SMALLEST, LARGEST, s)) if s > 1 else np.ones(1)


def largest_scale(scale: float | str) -> float:
    return LARGEST if scale == "mixed" else float(scale)


def most_samples(bank: str, features: int) -> int:
    """How many samples a bank has room for."""
    if bank not in A_FEATURE:
        return 10**9
    return int((ROOM / (8 * A_FEATURE[bank] * features)) ** 0.5) // 10 * 10


def array_of(bank: str, samples: Samples, scale: float | str, dtype: str, seed: int) -> tuple[Array, list[str]]:
    """Kernels (s, n, n) and their groups."""
    kernels = BANKS[bank](samples, np.random.default_rng(seed))
    if len(kernels) * samples.n**2 * np.dtype(dtype).itemsize > MOST:
        raise ValueError(f"{len(kernels)} kernels of {samples.n} samples are too many: name fewer samples in the table")
    K = np.empty((len(kernels), samples.n, samples.n), dtype)
    for a, factor in enumerate(scales(scale, len(kernels))):
        values = kernels[a][1]()
        np.multiply(values, values.dtype.type(factor), out=K[a], casting="same_kind")
    return K, [group for group, _ in kernels]


STORABLE: dict[str, Sequence[KernelConfig]] = {  # banks that dmkl's own configuration can say
    "gauss-view": [KernelConfig("rbf", params={"width": [f"{w:g} median" for w in WIDTHS]})],
    "mixed": [
        KernelConfig("linear", normalise=("unit-mean",)),
        KernelConfig("poly", params={"degree": 2}, normalise=("unit-mean",)),
        KernelConfig("rbf", params={"width": "1 median"}),
    ],
    "linear-view": [KernelConfig("linear", normalise=("unit-mean",))],
}


def store_of(bank: str, samples: Samples, path: Path, computed: bool) -> Path:
    """A store of the kernels, which are computed at every reading or kept in files."""
    views = {key: make_view(key, "features", X.astype(np.float32)) for key, X in views_of(samples).items()}
    data = Dataset(views, make_labels(np.arange(samples.n) % 2))
    build_store(path, plan_bank(STORABLE[bank], data), data, Local(), computed=computed)
    return path


COLUMNS = {"columns10000": 10_000, "columns100000": 100_000}  # Gaussians on random sets of columns, never held


Held = tuple[Array, list[str]] | Path | KernelStack


def columns_of(samples: Samples, count: int, memory: int) -> KernelStack:
    """Kernels that are computed from some columns of the features whenever they are read."""
    table = {"kernel": "rbf", "width": 3.0, "subsets": count}
    return KernelStack.from_features(samples.X, [table], memory=memory)


def stack_of(held: Held, memory: int, backend: str) -> KernelStack:
    """A stack over the kernels; of arrays and stores a new one, that knows nothing of what earlier fits found out."""
    if isinstance(held, KernelStack):
        return held
    if isinstance(held, Path):
        return open_stack(held, memory=memory, backend=backend)
    K, groups = held
    return KernelStack.from_array(K, groups=groups, memory=memory)
