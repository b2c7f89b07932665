"""From the configuration's [[kernels]] tables and the training data to a fitted bank, and to the choice between storing
its values and computing them again at every pass."""

from __future__ import annotations

import fnmatch
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dmkl._util.types import DOUBLE, Block, Samples
from dmkl.config import KernelConfig, Parameters, construct
from dmkl.data import Dataset, View
from dmkl.errors import ConfigError, DataError, did_you_mean
from dmkl.kernels.bank import NORMALISERS, Bank, BankKernel, Columns, Part, self_values
from dmkl.kernels.column_sums import column_sum
from dmkl.kernels.distances import BASES, MATRIX, dense
from dmkl.kernels.functions import KERNELS, UNITS, Kernel, Scales

SCALE_SAMPLES = 1000  # at most so many training samples are compared to measure distances for widths,
SUBSET_SAMPLES = 100  # and for those of a set of columns, of which there may be thousands

SIGNS = {"": "", "product": "*", "mean": "+"}  # between the names of views in the name of a kernel

PRECISE_BYTES = 256e6  # of all values in float64: up to here they are not rounded to float32


def plan_bank(configs: Sequence[KernelConfig], train: Dataset) -> Bank:
    """Expand every [[kernels]] table into its grid and fit widths and normalisers.

    Parameters
    ----------
    configs : the tables, in the order of the kernels.
    train : the training samples.

    Returns
    -------
    Bank
        One fitted kernel for each table, matching view (or all of them, if the table combines views) and combination
        of parameters.

    Raises
    ------
    ConfigError
        An unknown kernel, parameter, view or normaliser, or the same kernel twice.
    DataError
        Values that a kernel or normaliser cannot take.
    """
    train.check_symmetric()
    scales: dict[tuple[str, str, Columns], Scales] = {}
    kernels: list[BankKernel] = []
    subsets: dict[str, dict[Columns, int]] = {}  # their numbers, by view
    for config in configs:
        _check_normalisers(config)
        for views in _views_of_kernels(config, train):
            numbers = subsets.setdefault(views[0].name, {})
            for columns in _column_sets(config, views[0]):
                number = None if columns is None else numbers.setdefault(columns, len(numbers))
                for params in grid(config.params):
                    kernels.append(_fitted(config, views, columns, number, params, scales))
    for name, times in Counter(kernel.name for kernel in kernels).items():
        if times > 1:
            raise ConfigError(f"kernel '{name}' is listed twice")
    bank = Bank(tuple(kernels), train.n)
    if all(kernel.columns is None for kernel in kernels):
        small = len(bank) * train.n**2 * DOUBLE.itemsize <= PRECISE_BYTES
        return replace(bank, dtype=DOUBLE) if small else bank
    return bank.on_columns({name: int(view.values.shape[1]) for name, view in train.views.items()})


def _check_normalisers(config: KernelConfig) -> None:
    for name in config.normalise:
        if name not in NORMALISERS:
            raise ConfigError(f"unknown normaliser '{name}'", did_you_mean(name, list(NORMALISERS)))
    order = [NORMALISERS.index(name) for name in config.normalise]
    if order != sorted(set(order)) or {"unit-trace", "unit-mean"} <= set(config.normalise):
        raise ConfigError(
            f"normalise = {list(config.normalise)} is not in the order they apply",
            "use unit-diagonal, then centre, then one of unit-trace and unit-mean",
        )


def _views_of_kernels(config: KernelConfig, train: Dataset) -> list[list[View]]:
    """The views of each kernel, in the order of the data: one that the table names or matches, or all of them."""
    found = list(_matching_views(config, train))
    if not config.combine:
        if config.weights:
            raise ConfigError(f"kernel '{config.kernel}' has weights of views", 'add combine = "mean"')
        return [[view] for view in found]
    names = [view.name for view in found]
    if len(found) < 2:
        raise ConfigError(
            f"kernel '{config.kernel}': the {config.combine} is of two views or more, not of '{names[0]}' alone",
            "name more views, or leave combine out",
        )
    if config.subsets:
        raise ConfigError(f"kernel '{config.kernel}' combines views: it has no subsets", "make views of columns")
    if config.weights and config.combine != "mean":
        raise ConfigError(f"kernel '{config.kernel}': a {config.combine} has no weights", 'use combine = "mean"')
    if config.weights and (sorted(config.views) != sorted(names) or len(config.weights) != len(names)):
        raise ConfigError(
            f"kernel '{config.kernel}' has {len(config.weights)} weights for the views {', '.join(names)}",
            "name all views, and give a weight for each of them, in this order",
        )
    if not all(weight > 0 and np.isfinite(weight) for weight in config.weights):
        raise ConfigError(f"kernel '{config.kernel}': weights should be positive, not {list(config.weights)}")
    return [found]


def _weights(config: KernelConfig, views: Sequence[View]) -> list[float]:
    """The given weights of the views, in their order."""
    given = dict(zip(config.views, config.weights, strict=True)) if config.weights else {}
    return [given[view.name] for view in views if given]


def _shares(config: KernelConfig, views: Sequence[View]) -> tuple[float, ...]:
    """The weights of the views in a mean, of sum 1; none of a product or a single view."""
    if config.combine != "mean":
        return ()
    weights = _weights(config, views) or [1.0] * len(views)
    return tuple(weight / sum(weights) for weight in weights)


def _matching_views(config: KernelConfig, train: Dataset) -> Iterator[View]:
    """The views that the table names or matches; patterns skip constant features and views of another kind."""
    cls: type[Kernel] = KERNELS[config.kernel]
    found, constant = False, 0
    for name, view in train.views.items():
        exact = name in config.views
        if not exact and not any(fnmatch.fnmatchcase(name, pattern) for pattern in config.views):
            continue
        if view.kind != cls.view_kind:
            if exact:
                raise ConfigError(
                    f"kernel '{config.kernel}' needs a {cls.view_kind} view, '{name}' is a {view.kind} view"
                )
            continue
        if not exact and is_constant(view):
            constant += 1
            continue
        if cls.base != MATRIX and BASES[cls.base].nonnegative and view.values.min() < 0:
            raise DataError(f"kernel '{config.kernel}' needs features >= 0, view '{name}' has negative ones")
        found = True
        yield view
    for pattern in config.views:
        if pattern not in train.views and not any(fnmatch.fnmatchcase(name, pattern) for name in train.views):
            raise ConfigError(
                f"kernel '{config.kernel}': no view '{pattern}'", did_you_mean(pattern, list(train.views))
            )
    if not found:
        lack = "those it matches are constant" if constant else "the data have none"
        raise ConfigError(f"kernel '{config.kernel}' needs a {cls.view_kind} view and {lack}")


def is_constant(view: View) -> bool:
    """Whether this is a single feature with one value in all samples: it has no distances to measure a width from."""
    return view.kind == "features" and view.values.shape[1] == 1 and bool(view.values.max() == view.values.min())


def grid(params: Parameters) -> Iterator[Parameters]:
    """Every combination of the values of list-valued parameters."""
    options = [value if isinstance(value, list | tuple) else [value] for value in params.values()]
    for combination in itertools.product(*options):
        yield dict(zip(params, combination, strict=True))


def _column_sets(config: KernelConfig, view: View) -> list[Columns]:
    """The sets of columns that the table asks for, listed or random; None for all columns."""
    if not config.subsets:
        return [None]
    base = KERNELS[config.kernel].base
    if base == MATRIX or BASES[base].add is None:
        raise ConfigError(
            f"kernel '{config.kernel}' is no sum over columns: it has no subsets", "make views of columns"
        )
    width = int(view.values.shape[1])
    if not isinstance(config.subsets, int):
        sets = [tuple(sorted(set(chosen))) for chosen in config.subsets]
        for chosen in sets:
            if not chosen or chosen[0] < 0 or chosen[-1] >= width:
                raise ConfigError(
                    f"kernel '{config.kernel}': view '{view.name}' has no columns {list(chosen)}",
                    f"it has {width} columns, numbered from 0",
                )
        return list(sets)
    if config.subsets < 0:
        raise ConfigError(f"kernel '{config.kernel}': subsets should be a number of sets, not {config.subsets}")
    return list(random_subsets(width, config.subsets))


def random_subsets(width: int, count: int) -> list[tuple[int, ...]]:
    """So many different random sets of columns, or all there are; always the same, and so the first of any more.

    All numbers of columns are equally likely until sets come up again."""
    rng = np.random.default_rng(0)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(count, 2**width - 1):
        chosen = np.sort(rng.permutation(width)[: rng.integers(1, width + 1)])
        found[tuple(chosen.tolist())] = None
    return list(found)


def _fitted(
    config: KernelConfig,
    views: Sequence[View],
    columns: Columns,
    number: int | None,
    params: Parameters,
    scales: dict[tuple[str, str, Columns], Scales],
) -> BankKernel:
    weights = {"weights": ":".join(f"{weight:g}" for weight in _weights(config, views))} if config.weights else {}
    text = ", ".join(f"{key}={value}" for key, value in {**params, **weights}.items())
    among = SIGNS[config.combine].join(view.name for view in views)
    name = f"{among}{'' if number is None else f'[{number}]'}/{config.kernel}({text})"
    unfitted = construct(KERNELS[_kernel_for(config, views)], params, f"kernel {name}")
    if "centre" in config.normalise and not unfitted.symmetric:
        raise ConfigError(f"kernel {name} is not symmetric and cannot be centred", "leave 'centre' out")
    first, *others = [Part(view.name, _fitted_to(view, unfitted, columns, name, scales)) for view in views]
    kernel = BankKernel(
        name,
        first.view,
        config.group or among,
        first.function,
        config.normalise,
        columns=columns,
        others=tuple(others),
        weights=_shares(config, views),
    )
    return replace(kernel, trace=_trace(kernel, views))


def _fitted_to(
    view: View, function: Kernel, columns: Columns, name: str, scales: dict[tuple[str, str, Columns], Scales]
) -> Kernel:
    """The function with parameters in units of the distances in this view."""
    if not function.needs_scales or (columns is not None and function.fit(UNITS) == function):
        return function
    key = (view.name, function.base, columns)
    if key not in scales:
        scales[key] = measure(view, function.base, columns)
    try:
        return function.fit(scales[key])
    except ConfigError as error:
        raise ConfigError(f"kernel {name}: {error.message}", error.hint) from None


def _kernel_for(config: KernelConfig, views: Sequence[View]) -> str:
    """The kernel's name; on a view that is not symmetric `precomputed` becomes `similarity`."""
    skew = [view.name for view in views if not view.symmetric]
    if not skew or not KERNELS[config.kernel].symmetric:
        return config.kernel
    if config.kernel == "precomputed":
        return "similarity"
    raise ConfigError(f"kernel '{config.kernel}' needs a symmetric view, '{skew[0]}' is declared not to be")


def measure(view: View, base: str, columns: Columns = None) -> Scales:
    """Median and mean distance, and spread, over a fixed random subset of the training samples."""
    most = SCALE_SAMPLES if columns is None else SUBSET_SAMPLES
    chosen = _some_samples(view.values.shape[0], most)
    block = view.values[chosen]
    with np.errstate(over="ignore", invalid="ignore"):
        scales = _measured(block, base, chosen, columns)
    if np.isinf([scales.median, scales.mean, scales.spread]).any() or np.isnan(scales.spread):
        raise DataError(f"the {base} values of view '{view.name}' overflow", "rescale the features")
    return scales


def _measured(block: Block, base: str, chosen: Samples, columns: Columns) -> Scales:
    if base == MATRIX:
        distances = np.asarray(block[:, chosen], dtype=np.float64)
        spread = 0.0
    elif columns is not None:
        spread, distance = len(columns) * _variance(block[:, list(columns)]), BASES[base].distance
        if distance is None:
            return Scales(np.nan, np.nan, spread)
        distances = distance(column_sum(base, columns, block, block))
    else:
        block = block if hasattr(block, "toarray") else dense(block)
        spread = block.shape[1] * _variance(block)
        distance = BASES[base].distance
        if distance is None:
            return Scales(np.nan, np.nan, spread)
        distances = distance(BASES[base].tile(block, block))
    off_diagonal = distances[_pairs(len(chosen))]
    if not len(off_diagonal):
        return Scales(np.nan, np.nan, spread)
    return Scales(float(np.median(off_diagonal)), float(off_diagonal.mean()), spread)


@functools.lru_cache(maxsize=1)  # the same for thousands of sets of columns
def _some_samples(n: int, most: int) -> Samples:
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


@functools.lru_cache(maxsize=1)
def _pairs(count: int) -> tuple[Samples, Samples]:
    """Rows and columns right of the diagonal."""
    return np.triu_indices(count, 1)


def _variance(block: Block) -> float:
    """The variance of all entries; a sparse block stays sparse, because it may have millions of columns."""
    if isinstance(block, np.ndarray):
        return float(block.var())
    block, size = block.astype(np.float64), block.shape[0] * block.shape[1]
    return max(0.0, float(block.power(2).sum() / size - (block.sum() / size) ** 2))


def _trace(kernel: BankKernel, views: Sequence[View]) -> float:
    if kernel.function.base == MATRIX:
        diagonals = [np.asarray(view.values.diagonal(), dtype=np.float64) for view in views]
        values = np.asarray(kernel.evaluate(np.stack(diagonals) if kernel.others else diagonals[0]), dtype=np.float64)
    else:
        values = self_values(kernel, [view.values for view in views])
    if "unit-diagonal" in kernel.normalise:
        if kernel.function.view_kind == "kernel":
            raise ConfigError(
                f"kernel {kernel.name}: unit-diagonal would need k(x, x) of every new sample",
                "divide the matrices by it before handing them over",
            )
        if not (values > 0).all():
            sample = int(np.flatnonzero(~(values > 0))[0])
            raise DataError(
                f"kernel {kernel.name}: sample {sample} has k(x, x) = {values[sample]:g}, unit-diagonal needs > 0"
            )
        return float(len(values))
    trace = float(values.sum())
    if not (np.isfinite(trace) and (trace > 0 or not kernel.normalise)):
        raise DataError(f"kernel {kernel.name} has trace {trace:g} and cannot be normalised")
    return trace


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one thread for one entry, measured by passes over n = 4,096 on 2 cores of AMD Zen 5, local disk.

    The figures of bases and of functions stand beside them (`Base`, `Kernel`). Reading is from the disk and not from
    the page cache (0.6): a store that is read at every pass does not fit in memory, and one that fits is held there.
    """

    passes: int = 6  # of a usual certified fit
    write: float = 1.9  # a float32 entry with its checksum
    read: float = 1.8  # the same
    open: float = 450_000.0  # for each chunk that is read through Zarr: a tile of one kernel, a block of samples
    addition: float = 0.04  # of the sum over a set of columns, for each of them
    sparse: float = 15.0  # a base of sparse features: 1.7 to 31 were measured, by how many columns two samples share
    normalise: Mapping[str, float] = field(
        default_factory=lambda: {"unit-diagonal": 3.6, "centre": 0.9, "unit-trace": 0.1, "unit-mean": 0.1}
    )


MEASURED = Costs()


def cheaper_computed(bank: Bank, views: Mapping[str, View], tile: int, fits: int = 1, costs: Costs = MEASURED) -> bool:
    """Whether computing the average entry of a bank in every pass is cheaper than storing it.

    A computed entry takes c in every one of P passes: its share of the base and of reading the samples (which all
    kernels of one view and base divide among them), its elementwise function and its normalisers. A stored one takes c
    once, then W to be written and R in every pass, of which opening its tile is a constant part. So computing is
    cheaper when

        P c <= c + W + P R,   that is   c <= (W + P R) / (P - 1).

    Parameters
    ----------
    bank : the fitted kernels. A bank with distance or kernel matrices is stored: nothing would be computed, and its
        views are as large as tiles.
    views : the training views of the bank.
    tile : side of a tile.
    fits : number of fits that will read the kernels.
    costs : measured nanoseconds.
    """
    if any(kernel.function.base == MATRIX for kernel in bank.kernels):
        return False
    passes = costs.passes * fits
    stored = costs.write + passes * (costs.read + costs.open / tile**2)
    return computing_ns(bank, views, tile, costs) * (passes - 1) <= stored


def computing_ns(bank: Bank, views: Mapping[str, View], tile: int, costs: Costs = MEASURED) -> float:
    """Nanoseconds to compute one entry of an average kernel of the bank."""
    shared = {kernel.of for kernel in bank.kernels}
    bases = sum(_base_ns(views[view], base, columns, tile, costs) for names, base, columns in shared for view in names)
    own = (
        kernel.function.entry_ns * len(kernel.views) + sum(costs.normalise[name] for name in kernel.normalise)
        for kernel in bank.kernels
    )
    return (bases + sum(own)) / len(bank)


def _base_ns(view: View, base: str, chosen: Columns, tile: int, costs: Costs) -> float:
    if chosen is not None:  # the samples are read, and the terms computed, once for all sets
        return costs.addition * len(chosen)
    columns = int(view.values.shape[1])
    samples = 2 * costs.open / tile**2 if columns > 1 else 0.0  # single columns are read many at a time
    if hasattr(view.values, "toarray"):
        return samples + costs.sparse
    return samples + BASES[base].entry_ns + BASES[base].column_ns * columns
