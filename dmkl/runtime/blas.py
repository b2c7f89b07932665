"""How many threads BLAS has, in the whole package: one, unless work that is alone asks for more.

Parallelism is between tasks, and small products and factorisations on many threads wait for each other for longer than
they compute. So `solve` and every task run inside `one_blas_thread`. A single large product or factorisation, of a
problem with one class for example, may run inside `all_blas_threads`.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import LibController, ThreadpoolController

from dmkl._util import machine


class _BlasThreads:
    """The number of threads of all BLAS libraries of this process, and the threads of Python that depend on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[int, list[int]] = {}  # thread of Python -> the cores it may use, in every context it is in
        self._before: dict[str, int] = {}  # library -> the number of its threads before it was limited
        self._libraries: list[LibController] = []
        self._by_thread = False  # whether a library has a number for each thread of Python
        self._modules = -1  # their number at the last search for libraries, which takes 5 ms: longer than a small solve
        self._raised = False  # whether BLAS has more than one thread inside a context

    @contextmanager
    def one(self, *, cores: int | None = None) -> Iterator[None]:
        """BLAS has one thread inside. The limit is process-wide: the last thread of Python to leave restores it.

        Parameters
        ----------
        cores : int, optional
            How many cores the work inside may use in all, no more than in the contexts around; as many if left out.
            With one core it cannot ask for `all_blas_threads`.
        """
        me = threading.get_ident()
        with self._lock:
            mine = self._inside.setdefault(me, [])
            most = mine[-1] if mine else machine.cores()
            mine.append(most if cores is None else min(cores, most))
            self._find()
            if len(mine) == 1 and (self._raised or self._by_thread):  # whoever has all cores is alone no longer
                self._set(1)
        try:
            yield
        finally:
            with self._lock:
                mine.pop()
                if not mine:
                    del self._inside[me]
                if not self._inside:
                    self._set(sys.maxsize)
                    self._before, self._raised = {}, False

    @contextmanager
    def all(self) -> Iterator[int]:
        """BLAS has all cores inside, if nothing of dmkl runs beside: for a single large product or factorisation.

        "All" is what BLAS had before it was limited, so OPENBLAS_NUM_THREADS, joblib and threadpoolctl are respected,
        and at most the `cores` of the contexts around: `run.workers`, or `n_jobs` of an estimator.

        BLAS keeps its one thread

        * while other threads of Python are inside `one_blas_thread`: other tasks, or other calls of `solve`,
        * in tasks of a cluster, and in processes started by multiprocessing: whoever started them divided the cores,
        * inside another context like this, which has the cores already.

        Where another thread enters `one_blas_thread` later, BLAS has one thread from then on. Outside of
        `one_blas_thread` nothing changes.

        The last bits of BLAS depend on the number of its threads, those of products too. Work whose bits must be the
        same on every runtime is cut into tasks of `Runtime.map` instead.

        Yields
        ------
        int
            The number of threads that BLAS has at first: 1 where it keeps its one thread.
        """
        me = threading.get_ident()
        with self._lock:
            mine = self._inside.get(me, [])
            alone = list(self._inside) == [me] and multiprocessing.parent_process() is None
            granted = alone and mine[-1] > 1 and not self._raised
            if granted:
                self._find()
                self._set(mine[-1])
            threads = max((library.num_threads for library in self._libraries), default=1)
        try:
            yield threads
        finally:
            with self._lock:
                if granted and self._raised:
                    self._set(1)

    def _find(self) -> None:
        """Search for libraries again if imports may have brought more, and limit those to one thread."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            self._by_thread = any(getattr(one, "threading_layer", "") == "openmp" for one in self._libraries)
        for library in self._libraries:
            if library.filepath not in self._before:
                self._before[library.filepath] = library.num_threads
                _set_threads(library, 1)

    def _set(self, most: int) -> None:
        self._raised = most > 1
        for library in self._libraries:
            _set_threads(library, min(most, self._before[library.filepath]))


def _set_threads(library: LibController, count: int) -> None:
    """For the whole process, whichever thread of Python asks.

    Since version 3.8 threadpoolctl only listens to the first thread that asked, as long as that thread lives.
    """
    forget = getattr(type(library), "clear_controlling_thread", lambda *, force: None)
    forget(force=True)
    library.set_num_threads(count)
    forget(force=True)


_threads = _BlasThreads()
one_blas_thread = _threads.one
all_blas_threads = _threads.all
