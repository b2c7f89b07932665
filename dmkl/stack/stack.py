"""The kernel stack: everything that solvers know of kernels.

Each question of a solver is answered in one pass over the tiles. The modules beside this one hold the questions, one
each: `score`, `blocks` (and whole rows), `per_kernel`. Where the values come from is a matter of the `Source` below the
stack, and where tasks run is a matter of the runtime. `open_stack` chooses both for a kernel store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmkl._util.machine import Budget, cores
from dmkl._util.tiling import Grid
from dmkl._util.types import Float64, FloatArray, FloatType, Mask, Samples, StrPath
from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, make_view
from dmkl.errors import ConfigError
from dmkl.kernels import plan_bank
from dmkl.runtime import Local, Runtime
from dmkl.stack import blocks, per_kernel, score
from dmkl.stack.blocks import TaskMatrix
from dmkl.stack.checks import (
    checked_array,
    checked_groups,
    checked_samples,
    refuse_indefinite,
    require_definite,
)
from dmkl.stack.compiled import cut, rows_of
from dmkl.stack.features import FeatureSource
from dmkl.stack.score import Applied
from dmkl.stack.sources import ArraySource, Source, TileReader
from dmkl.stack.tiles import ComputedSource, fetched, fits_here, held_here, held_on_workers, mapped
from dmkl.store import KernelStore

if TYPE_CHECKING:
    from distributed import Client

BACKENDS = ("auto", "memory", "disk", "computed", "cluster")
T = TypeVar("T")


class KernelStack(TileReader):
    """s kernels over the same n samples.

    `from_array` makes one of an array, `from_features` of features, `open` of a kernel store; the constructor takes any
    source. `apply`, `rows`
    and the methods that cut blocks are for symmetric kernels, the others for any.

    Parameters
    ----------
    source : the kernel values
    names : a name for each kernel, "K0", "K1", ... if None
    groups : (s,) any label of each kernel's group, one group for all if None
    runtime : where tasks run, threads of this process if None
    memory : the limit on this process's memory, most of what is free if None
    backend : the name of the kind of stack in reports, that of the source if empty

    Attributes
    ----------
    names : tuple of s names
    groups : (s,) group numbers from 0 on
    own_groups : whether the groups are part of a problem beside the kernels; the id of a store stands for its groups
    passes : how often the tiles have been read from end to end
    parent : the stack that this one has some samples of, None if it has all

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import KernelStack
    >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    >>> stack = KernelStack.from_array(np.stack([X @ X.T, np.eye(3)]), names=["linear", "identity"])
    >>> stack.s, stack.n
    (2, 3)
    >>> stack.combine(np.array([0.5, 1.0]))
    array([[1.5, 0.5, 0. ],
           [0.5, 2. , 1. ],
           [0. , 1. , 3. ]])
    >>> stack.apply(np.ones((3, 1)), np.array([0.5, 1.0])).forms
    array([[13.,  3.]])
    """

    def __init__(
        self,
        source: Source,
        *,
        names: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
        runtime: Runtime | None = None,
        memory: Budget | None = None,
        backend: str = "",
    ) -> None:
        super().__init__(source, runtime, memory)
        self.names = tuple(names) if names is not None else tuple(f"K{a}" for a in range(source.s))
        self.groups = checked_groups(groups, source.s)
        self.backend = backend or source.backend
        self.parent: KernelStack | None = None
        self._in_parent: Samples = np.arange(0)  # the numbers of its samples there
        self._definite = False  # until they have been checked
        self._row_norms: Float64 | None = None

    @classmethod
    def from_array(
        cls,
        K: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        workers: int = 0,
        memory: int | None = None,
        largest_tile: int = 1024,
    ) -> KernelStack:
        """A stack over an array. The array is kept as it is: kernels are not normalised, float64 stays float64.

        Parameters
        ----------
        K : (s, n, n) real kernel values; a dask array is computed, an xarray.DataArray taken by its values
        groups : (s,) any label of each kernel's group, one group for all if None
        names : s names, "K0", "K1", ... if None
        workers : threads, 0 for as many as there are cores
        memory : bytes that this process may take, most of what is free if None
        largest_tile : samples in a block of rows, at most; each is one task of a pass

        Raises
        ------
        DataError
            If K has another shape, or values that are not finite real numbers.
        ResourceError
            If K is a dask array that does not fit in the free memory.
        """
        array, symmetric = checked_array(K)
        grid = Grid.cut(array.shape[1], largest_tile, full=True)  # an array has every tile
        return cls(
            ArraySource(array, grid, symmetric=symmetric),
            names=names,
            groups=groups,
            runtime=Local(workers),
            memory=Budget(memory) if memory else None,
        )

    @classmethod
    def from_features(
        cls,
        X: ArrayLike,
        kernels: Sequence[Mapping[str, object]],
        *,
        workers: int = 0,
        memory: int | None = None,
        largest_tile: int = 1024,
    ) -> KernelStack:
        """A stack of kernels that are computed from features whenever they are read: for many kernels on sets of
        columns, whose values would not fit in memory.

        Parameters
        ----------
        X : (n, columns) features; a dask array is computed, an xarray.DataArray taken by its values
        kernels : tables as in `[[kernels]]` of a configuration; their key `subsets` is a number of random sets of
            columns, or a list of sets
        workers : threads, 0 for as many as there are cores
        memory : bytes that this process may take, most of what is free if None
        largest_tile : samples in a block of rows, at most

        Raises
        ------
        ConfigError
            If a kernel is unknown, or is no function of a sum over columns.
        DataError
            If X has values that a kernel cannot take.

        Examples
        --------
        >>> import numpy as np
        >>> from dmkl import KernelStack
        >>> X = np.random.default_rng(0).normal(size=(50, 20))
        >>> stack = KernelStack.from_features(X, [{"kernel": "rbf", "width": "1 median", "subsets": 1000}])
        >>> stack.s, stack.names[0]
        (1000, 'x[0]/rbf(width=1 median)')
        """
        data = Dataset({"x": make_view("x", "features", X)})
        tables = [construct(KernelConfig, table, f"kernels[{number}]") for number, table in enumerate(kernels)]
        features = data.views["x"].values
        bank = plan_bank(tables, data).on_columns({"x": int(features.shape[1])})
        source = FeatureSource({"x": features}, bank, Grid.cut(data.n, largest_tile))
        return cls(
            source,
            names=[kernel.name for kernel in bank.kernels],
            groups=bank.groups,
            runtime=Local(workers),
            memory=Budget(memory) if memory else None,
        )

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        workers: int = 0,
        memory: int | None = None,
        client: Client | None = None,
        backend: str = "auto",
    ) -> KernelStack:
        """A stack over a finished kernel store.

        Tiles on disk are mapped into memory, where all processes of a machine share them; tiles that are computed, or
        fetched from an object store, are held if they fit, and computed or fetched in every pass if they do not. With
        a client this is done by the workers.

        Parameters
        ----------
        path : the folder of the store, or its URL
        workers : threads, 0 for as many as there are cores
        memory : bytes that this process may take, most of what is free if None
        client : a `distributed.Client`
        backend : where tiles are, see `open_stack`; "computed" holds none of a store that computes them

        Raises
        ------
        StoreError
            If there is no store, it is damaged or not finished, or an object store does not answer.
        """
        return open_stack(path, workers=workers, memory=memory, client=client, backend=backend)

    # --- facts

    @property
    def identity(self) -> str:
        """A text that stacks share only if they have the same kernels over the same samples.

        It is the id of a store, or a digest: of an array's values, of the numbers of a choice or a part with the
        identity of what it was made from. It is found when first asked for."""
        return self.source.identity

    @property
    def groups(self) -> Samples:
        """(s,) group numbers from 0 on; `own_groups` becomes True when others are assigned."""
        return self._groups

    @groups.setter
    def groups(self, numbers: Samples) -> None:
        self._groups, self.own_groups = numbers, True

    @property
    def held_bytes(self) -> int:
        """Bytes of kernel values in the memory of this process."""
        return self.source.held_bytes

    @property
    def in_one_array(self) -> bool:
        """Whether a block of all samples and kernels costs nothing."""
        return self.source.as_array() is not None

    def news(self) -> list[str]:
        """Sentences about tiles that were repaired since the last call."""
        return self.source.repairs.news() if self.source.repairs else []

    # --- other stacks over the same tiles

    def choose(self, kernels: Sequence[int]) -> KernelStack:
        """A stack of some of the kernels, over the same tiles.

        Parameters
        ----------
        kernels : their numbers, in the order wanted
        """
        if self.parent is not None:
            return self.parent.choose(kernels).restrict(self._in_parent)
        chosen = self.over(self.source.choose(kernels, self.runtime), kernels)
        chosen._definite = self._definite
        return chosen

    def restrict(self, samples: ArrayLike) -> KernelStack:
        """A stack of some of the samples, over the same tiles: a fold of a cross-validation, say.

        Parameters
        ----------
        samples : their numbers, ascending

        Raises
        ------
        DataError
            If these are no ascending numbers of samples.
        """
        numbers = checked_samples(samples, self.n)
        part = self.over(self.source.restrict(numbers, self.runtime))
        part.parent, part._in_parent = self, numbers
        return part

    def moved(self, runtime: Runtime) -> KernelStack:
        """The same kernels where the tasks of a cluster read them; this stack itself if they stay in this process."""
        if self.parent is not None:
            return self.parent.moved(runtime).restrict(self._in_parent)
        portable = self.source.portable
        if portable is None:
            return self
        there = self.over(held_on_workers(portable, runtime), runtime=runtime, backend="cluster")
        there._definite = self._definite
        return there

    def in_this_process(self) -> KernelStack:
        """The same kernels with tasks in threads of this process, as many as there are workers.

        This stack itself where workers are on other machines, or hold tiles that had to be computed or fetched."""
        runtime = self.runtime
        if self.source.worth_holding or not (runtime.remote and runtime.together):
            return self
        if self.parent is not None:
            part = self.parent.in_this_process().restrict(self._in_parent)
            part.observer = self.observer
            return part
        here = self.over(self.source, runtime=Local(runtime.workers), backend=self.source.backend)
        here._definite, here.observer = self._definite, self.observer
        return here

    def over(
        self,
        source: Source,
        kernels: Sequence[int] | None = None,
        *,
        runtime: Runtime | None = None,
        memory: Budget | None = None,
        backend: str = "",
    ) -> KernelStack:
        """A stack over another source, with the names and groups of this one.

        Parameters
        ----------
        source : the kernel values
        kernels : the numbers that its kernels have in this stack, all in order if None
        runtime, memory, backend : as in the constructor, those of this stack unless said otherwise
        """
        numbers = list(range(self.s) if kernels is None else kernels)
        stack = KernelStack(
            source,
            names=[self.names[a] for a in numbers],
            runtime=runtime or self.runtime,
            memory=memory or self.memory,
            backend=backend or self.backend,
        )
        stack.groups, stack.own_groups = self.groups[numbers], self.own_groups  # the same numbers, not from 0 on
        return stack

    # --- questions

    def apply(self, coef: Float64, weights: Float64, *, forms: bool | Mask = True) -> Applied:
        """Scores and quadratic forms of coefficients; one pass.

        A kernel is not read for a class that has no weight for it and wants no form of it.

        Parameters
        ----------
        coef : (n, m) coefficients of m classes
        weights : (m, s) kernel weights, or (s,) weights that all classes share
        forms : whether forms are wanted, or a mask (m, s) of those that are; the others come back as 0

        Returns
        -------
        Applied
            scores (n, m), `sum_a weights[k, a] K_a coef[:, k]`; forms (m, s), `coef[:, k]' K_a coef[:, k]`, or None

        Raises
        ------
        SolverError
            If the shapes do not fit the stack.
        """
        return score.apply(self, coef, weights, forms)

    def rows(self, samples: Samples, *, kernels: Sequence[int] | None = None) -> FloatArray:
        """Whole kernel rows `K[kernels][:, samples, :]`, (kernels, samples, n); one pass.

        Parameters
        ----------
        samples : ascending numbers
        kernels : numbers, all if None

        Raises
        ------
        ResourceError
            If they do not fit in memory.
        """
        return blocks.rows(self, samples, kernels)

    def block(
        self,
        sets: Sequence[Samples],
        *,
        kernels: Sequence[Sequence[int]] | None = None,
        weights: Float64 | None = None,
        dtype: DTypeLike | None = None,
        passing: bool = False,
    ) -> list[FloatArray]:
        """For each set W of samples `K[kernels][:, W, W]`, (kernels, W, W), or a weighted sum (W, W); one pass.

        A weighted sum of float32 kernels in float32 is rounded once more, which certificates below about 1e-5 notice.

        Parameters
        ----------
        sets : ascending numbers of samples
        kernels : numbers for each set, all kernels if None
        weights : (s,) of the sum, no sum if None
        dtype : of the blocks, that of the stack if None
        passing : whether the next call with this argument may overwrite the blocks

        Raises
        ------
        ResourceError
            If the blocks do not fit in memory.
        """
        return blocks.blocks_of(self, blocks.BlockRequest.of(self, sets, kernels, weights, dtype), passing=passing)

    def block_near(self, sets: Sequence[Samples]) -> list[Any]:
        """The blocks of all kernels where tasks run, to be taken by many tasks: arrays in this process, or futures of
        arrays that workers cut and keep; one pass.

        Parameters
        ----------
        sets : ascending numbers of samples
        """
        return blocks.blocks_near(self, sets)

    def room_near(self, room: int) -> int:
        """Bytes that such blocks may take: the room in this process, or that of all workers."""
        return blocks.room_near(self, room)

    def cut_in_tasks(self, sizes: Sequence[int], room: float) -> bool:
        """Whether `answers` has blocks of these bytes cut by the tasks that use them, so that few are there at once.

        Workers do so where they can read all tiles, and the threads of this process if tiles are at hand, blocks are
        many, and one for each thread fits in the room."""
        return blocks.cut_in_tasks(self, sizes, room)

    def answers(
        self,
        function: Callable[..., T],
        questions: Sequence[tuple[object, ...]],
        sets: Sequence[Samples],
        *,
        runtime: Runtime,
        room: float = np.inf,
        kernels: Sequence[Sequence[int]] | None = None,
        weights: Float64 | None = None,
        dtype: DTypeLike | None = None,
    ) -> list[T]:
        """`function(block, *question)` for the block of each set; one pass.

        Where workers can read all tiles, they cut the blocks themselves, and no block travels. The threads of this
        process may do so too (`cut_in_tasks`).

        Parameters
        ----------
        function : called in tasks
        questions : the other arguments, one tuple for each set
        sets : ascending numbers of samples
        runtime : where the tasks run
        room : bytes that blocks may take that tasks of this process cut
        kernels, weights, dtype : as in `block`
        """
        request = blocks.BlockRequest.of(self, sets, kernels, weights, dtype)
        return blocks.answers(self, function, questions, request, runtime, room)

    def combine(self, weights: Float64, *, dtype: DTypeLike | None = None) -> FloatArray:
        """The weighted sum `sum_a weights[a] K_a` (n, n); one pass.

        Parameters
        ----------
        weights : (s,)
        dtype : of the sum, that of the stack if None
        """
        return self.block([np.arange(self.n)], weights=np.asarray(weights, dtype=np.float64), dtype=dtype)[0]

    def combine_near(self, weights: Float64, *, dtype: DTypeLike | None = None) -> Any:
        """The weighted sum where tasks run: the matrix itself in this process, a future of it on a cluster."""
        return blocks.combine_near(self, np.asarray(weights, dtype=np.float64), dtype)

    def combine_in_tasks(self, weights: Float64, *, dtype: DTypeLike | None = None) -> TaskMatrix | None:
        """The weighted sum for the tasks of a cluster, without sending it to them.

        Workers of this machine fill memory that they share, others compute it from tiles that they have at hand. None
        on other runtimes, and for other tiles."""
        return blocks.combine_in_tasks(self, np.asarray(weights, dtype=np.float64), dtype)

    def summed(self, weights: Float64, dtype: FloatType, room: float) -> KernelStack | None:
        """A stack of one kernel, the weighted sum, whose tiles are held where tasks run: products with it read s times
        less. None if they do not fit; one pass.

        Parameters
        ----------
        weights : (s,)
        dtype : of the sum
        room : bytes that it may take in this process; on a cluster the workers' memory decides
        """
        source = blocks.summed(self, np.asarray(weights, dtype=np.float64), dtype, room)
        if source is None:
            return None
        stack = KernelStack(source, names=["sum"], runtime=self.runtime, memory=self.memory)
        stack.observer = self.observer
        return stack

    def to_dask(self) -> Any:
        """The kernels as a dask array (s, n, n) with both triangles, cut by the blocks of the stack; lazy.

        Tasks read or compute tiles where they run. On a cluster the kernels should be in a store that all workers can
        read; values in the memory of this process (an array, features) become part of Dask's graph.

        Returns
        -------
        dask.array.Array

        Examples
        --------
        >>> import numpy as np
        >>> from dmkl import KernelStack
        >>> stack = KernelStack.from_array(np.stack([np.eye(3), np.ones((3, 3))]))
        >>> stack.to_dask().sum(axis=(1, 2)).compute()
        array([3., 9.])
        """
        from dmkl.stack.lazy import lazy_array  # importing dask.array takes a while

        return lazy_array(self.source)

    def expand(self, alpha: Float64) -> Float64:
        """Scores `sum_a K_a' alpha[a]` (n, m) of coefficients for every kernel apart; one pass.

        Kernels whose coefficients are all zero are not read.

        Parameters
        ----------
        alpha : (s, n, m)
        """
        return per_kernel.expand(self, alpha)

    def correlate(self, beta: Float64, *, kernels: Sequence[int] | None = None) -> Float64:
        """`K_a beta` (kernels, n, m) of every kernel apart; one pass.

        Parameters
        ----------
        beta : (n, m)
        kernels : numbers, all if None
        """
        return per_kernel.correlate(self, beta, kernels)

    def row_norms(self) -> Float64:
        """The norm of every kernel row, `sqrt(sum_j K_a[i, j]^2)` (s, n); one pass, the first time only."""
        if self._row_norms is None:
            self._row_norms = per_kernel.row_norms(self)
        return self._row_norms

    def pick(self, members: Mask) -> FloatArray:
        """The rows `K_a[i, :]` for which members[a, i], below each other (p, n), kernel after kernel; one pass.

        Parameters
        ----------
        members : mask (s, n)

        Raises
        ------
        ResourceError
            If they do not fit in memory.
        """
        return blocks.pick(self, members)

    def reach(self, others: ArrayLike, coef: Float64, weights: Float64 | None) -> Float64:
        """Scores (others, m) of samples outside a part by coefficients of the part's samples; one pass.

        Parameters
        ----------
        others : ascending numbers of samples in the `parent`, or in this stack if it has none
        coef : (n, m); or (n, m s), class after class, for kernels that have coefficients of their own
        weights : (s,) or (m, s); None for kernels that have coefficients of their own

        Raises
        ------
        DataError
            If `others` are no ascending numbers of samples.
        """
        origin = self if self.parent is None else self.parent
        return per_kernel.reach(self, origin.source.places(checked_samples(others, origin.n)), coef, weights)

    def require_semidefinite(self, formulation: str) -> None:
        """Refuse kernels that a convex formulation cannot use. They are checked once, for all parts of a stack.

        Parameters
        ----------
        formulation : the name of the formulation, for the message

        Raises
        ------
        DataError
            If a kernel is not symmetric.
        SolverError
            If a kernel is clearly not positive semidefinite.
        """
        if self.parent is not None:  # a part of a semidefinite kernel is semidefinite
            self.parent.require_semidefinite(formulation)
            return
        if self.source.indefinite:
            refuse_indefinite(formulation, self.names[self.source.indefinite[0]])
        if self._definite:
            return
        self.source.require_symmetric(range(self.s), cores() if self.runtime.remote else self.runtime.workers)
        if self.source.unproven:
            numbers = list(self.source.unproven)
            names = [self.names[a] for a in numbers]
            require_definite(formulation, names, self.n, lambda W: self._over(W, numbers))
        self._definite = True

    def _over(self, W: Samples, kernels: list[int]) -> FloatArray:
        """Some kernels over a few samples."""
        whole = self.source.as_array()
        if whole is None:
            return self.block([W], kernels=[kernels])[0]
        part = np.empty((len(kernels), len(W), len(W)))
        for layer, a in zip(part, kernels, strict=True):
            cut(rows_of(whole[a]), W, W, layer, 0, 0)
        return part


def open_stack(
    store: KernelStore | StrPath,
    *,
    workers: int = 0,
    memory: int | None = None,
    client: Client | None = None,
    runtime: Runtime | None = None,
    backend: str = "auto",
) -> KernelStack:
    """Open a finished store.

    Parameters
    ----------
    store : the folder or URL of a store, or a store that is open
    workers : threads, 0 for as many as there are cores
    memory : bytes that this process may take, most of what is free if None
    client : a `distributed.Client`
    runtime : where tasks run, in place of `workers` and `client`
    backend : 'memory' keeps all tiles in memory, 'disk' a few of them, 'computed' computes them in every pass,
        'cluster' has workers map them, or hold fetched or computed ones if they fit; 'auto' is 'cluster' on a cluster,
        'memory' if all tiles fit, and 'disk' or 'computed', as the store has them, if they do not. On an object store
        'disk' fetches tiles in every pass, and the stack is called 'fetched'

    Raises
    ------
    ConfigError
        If there is no such backend, the store has no tiles to read from disk, or it is in the memory of this process
        and tasks run in others.
    StoreError
        If there is no store, it is damaged or not finished, or an object store does not answer.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"unknown stack backend '{backend}'", f"use one of {', '.join(BACKENDS)}")
    store = store if isinstance(store, KernelStore) else KernelStore(store)
    store.require_complete()
    if runtime is None:
        runtime = _cluster(client) if client is not None else Local(workers)
    store.place.check_reach(runtime.remote)
    budget = Budget(memory) if memory else Budget.default()
    if backend == "disk" and store.computed:
        raise ConfigError(f"{store.place} has no tiles to read from disk", "use the backend 'computed' or 'auto'")
    source: Source
    computed = store.computed or backend == "computed"
    if computed or store.place.remote:
        origin = source = ComputedSource(store) if computed else fetched(store, budget, runtime)
        if backend == "auto":
            backend = "cluster" if runtime.remote else "memory" if fits_here(source, budget) else "disk"
        if backend == "memory":
            source = held_here(source, runtime)
        elif backend == "cluster":
            source = held_on_workers(source, runtime)
        else:
            backend = origin.backend
    else:
        source = mapped(store, budget, runtime, whole={"memory": True, "disk": False}.get(backend))
        budget = budget.mapping(source.held_bytes)
        if backend == "auto":
            backend = "cluster" if runtime.remote else "memory" if source.smallest_read == 1 else "disk"
    names = [kernel.name for kernel in store.bank.kernels]
    stack = KernelStack(source, names=names, groups=store.bank.groups, runtime=runtime, memory=budget, backend=backend)
    stack.own_groups = False  # checkpoints name the store's id alone
    return stack


def on_cluster(stack: KernelStack, client: Client) -> tuple[KernelStack, Runtime]:
    """A stack where the workers of a Dask client can read it, and the client's runtime. An array stays here."""
    runtime = _cluster(client)
    return stack.moved(runtime), runtime


def _cluster(client: Client) -> Runtime:
    from dmkl.runtime.dask import DaskRuntime

    return DaskRuntime(client)
