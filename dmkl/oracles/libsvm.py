"""LIBSVM's own solver through ctypes: the reference other oracles are compared with.

One class on a precomputed kernel (C-SVC, -t 4), min over 0 <= alpha <= C, y'alpha = 0 of 1/2 beta' K beta - sum(alpha).
LIBSVM reads a kernel matrix as rows of {index, value} nodes; numpy writes all of them as one structured array, which
serves every class with the same kernel (the stock Python conversion loops over entries and takes 70 times as long).
LIBSVM stops on the optimality conditions, not on the gap: its eps is lowered, restarting cold, until the certificate
holds. It keeps kernel rows in float32, so a float64 kernel is solved to about 1e-7, whatever `tol` says. A run of it
cannot be interrupted: deadlines and signals are looked at between runs only.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import available
from dmkl._util.stopping import must_stop
from dmkl._util.types import Array, Float64, FloatArray
from dmkl.errors import ResourceError, SolverError
from dmkl.oracles.base import (
    MAX_STEPS,
    Feature,
    PreparedKernel,
    SvmResult,
    SvmTask,
    certified,
    checked_kernel,
    checked_task,
    fresh_scores,
    inflation,
    refuse_unsupported,
)

_NODE = np.dtype({"names": ["index", "value"], "formats": ["i4", "f8"], "offsets": [0, 8], "itemsize": 16})
_MAX_CACHE_MB = 512.0
_LEAST_EPS = 1e-12
_printed = threading.local()


@dataclass(frozen=True)
class NodeKernel(PreparedKernel):
    """The kernel as LIBSVM's nodes: row i is its number, then K_i, then a terminator."""

    nodes: Array
    rows: NDArray[np.uint64]  # the address of every row


@functools.cache
def _library() -> Any:
    """The `libsvm.svm` module, made quiet; its number of steps is read from the text it would print."""
    try:
        from libsvm import svm
    except Exception as error:  # it raises bare Exceptions where its shared library is missing
        raise SolverError(
            f"LIBSVM cannot be loaded ({error})", "pip install libsvm-official, or use oracle 'smo'"
        ) from error
    svm.libsvm.svm_set_print_string_function(_listener(svm))
    return svm


@functools.cache
def _listener(svm: Any) -> Any:
    """Cached: LIBSVM keeps the pointer, so the callback must live as long as the process."""

    def listen(text: bytes) -> None:
        _printed.steps = getattr(_printed, "steps", 0) + sum(int(n) for n in re.findall(rb"#iter = (\d+)", text))

    return svm.PRINT_STRING_FUN(listen)


class LibsvmOracle:
    """The oracle `libsvm`: one C, an intercept, cold starts (a warm start is ignored)."""

    name = "libsvm"
    copies = True
    supports: frozenset[Feature] = frozenset()

    def prepare(self, K: FloatArray | PreparedKernel) -> NodeKernel:
        """The node array, 16 bytes an entry, refused if that is more than the memory there is."""
        if isinstance(K, NodeKernel):
            return K
        kernel = K if isinstance(K, PreparedKernel) else checked_kernel(K)
        n = len(kernel.diagonal)
        needed, free = 16 * n * (n + 2), available()
        if needed > free:
            raise ResourceError(
                f"LIBSVM's copy of a kernel of {n} samples needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
                "use oracle 'smo', which needs no copy",
            )
        if not np.isfinite(kernel.K).all():  # LIBSVM would search for its full ten million steps
            raise SolverError("the kernel matrix has NaN or infinite entries")
        nodes = np.empty((n, n + 2), dtype=_NODE)
        nodes["index"] = np.arange(n + 2)
        nodes["index"][:, -1] = -1
        nodes["value"][:, 0] = np.arange(1, n + 1)
        nodes["value"][:, 1:-1] = kernel.K
        nodes["value"][:, -1] = 0.0
        rows = nodes.ctypes.data + nodes.strides[0] * np.arange(n, dtype=np.uint64)
        return NodeKernel(K=kernel.K, diagonal=kernel.diagonal, nodes=nodes, rows=rows.astype(np.uint64))

    def __call__(
        self,
        K: FloatArray | PreparedKernel,
        y: FloatArray,
        upper: FloatArray | float,
        *,
        linear: FloatArray | None = None,
        intercept: bool = True,
        alpha: FloatArray | None = None,
        tol: float = 1e-3,
        max_steps: int = MAX_STEPS,
    ) -> SvmResult:
        """See base: the problem, its arguments, the certified answer. `max_steps` is seen only between restarts."""
        kernel = self.prepare(K)
        task = checked_task(
            len(kernel.diagonal),
            y,
            upper,
            linear=linear,
            intercept=intercept,
            alpha=alpha,
            tol=tol,
            max_steps=max_steps,
        )
        refuse_unsupported(self.name, self.supports, task)
        C, zero = float(task.upper[0]), np.zeros(len(task.y))
        if C == 0.0 or abs(task.y.sum()) == len(zero):  # LIBSVM refuses C = 0 and answers nothing for one label
            return certified(kernel, task, zero, zero, 0)
        best, steps, eps = None, 0, min(max(tol, _LEAST_EPS), 0.1)
        while True:
            beta, taken = _train(kernel, task, C, eps)
            steps += taken
            result = _certified(kernel, task, beta, steps)
            stuck = best is not None and result.gap > 0.5 * best.gap and eps < 1e-6
            best = result if best is None or result.gap < best.gap else best
            if best.gap <= tol or stuck or eps <= _LEAST_EPS or steps >= max_steps or must_stop():
                return best
            eps = max(eps * min(max(0.5 * tol / best.gap, 0.01), 0.3), _LEAST_EPS)


LIBSVM = LibsvmOracle()


def _certified(kernel: NodeKernel, task: SvmTask, beta: Float64, steps: int) -> SvmResult:
    """The better certificate of beta and of its inflation."""
    scores = fresh_scores(kernel.K, beta)
    plain, scale = certified(kernel, task, beta, scores, steps), inflation(task, beta, scores)
    if scale == 1.0 or plain.gap <= task.tol:
        return plain
    return min(plain, certified(kernel, task, scale * beta, scale * scores, steps), key=lambda result: result.gap)


def _train(kernel: NodeKernel, task: SvmTask, C: float, eps: float) -> tuple[Float64, int]:
    """(beta, steps) of one cold run."""
    svm = _library()
    n = len(task.y)
    problem = svm.svm_problem.__new__(svm.svm_problem)  # its __init__ would convert entry by entry
    problem.l = n
    problem.y = task.y.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    problem.x = ctypes.cast(kernel.rows.ctypes.data, ctypes.POINTER(ctypes.POINTER(svm.svm_node)))
    parameter = svm.svm_parameter.__new__(svm.svm_parameter)  # its __init__ would replace our listener
    parameter.set_to_default_values()
    parameter.svm_type, parameter.kernel_type = svm.svm_forms.C_SVC, svm.kernel_names.PRECOMPUTED
    parameter.C, parameter.eps = C, eps
    parameter.cache_size = min(n * n * 4 / 2**20 + 1.0, _MAX_CACHE_MB)
    _printed.steps = 0
    model = svm.libsvm.svm_train(ctypes.byref(problem), ctypes.byref(parameter))
    try:
        count = model.contents.l
        beta = np.zeros(n)
        if count:
            chosen = np.ctypeslib.as_array(model.contents.sv_indices, (count,)) - 1
            beta[chosen] = np.ctypeslib.as_array(model.contents.sv_coef[0], (count,))
    finally:
        svm.libsvm.svm_free_and_destroy_model(ctypes.byref(model))
    return beta, _printed.steps
