"""What a batch's steps need to be told, asked for while the batch before is still being learnt from.

Of the coefficients only those of that batch change meanwhile. So its samples are left out of the question, kernel
values against them are asked for instead, and their part of the scores is added when their coefficients are known. The
sums are the same, in the same order, whether anything runs ahead or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.runtime import Runtime
from dmkl.stack import KernelStack, Source

SMALL = 1 << 20  # kernel values of a batch that threads are not worth starting for
LARGEST = 1 << 24  # kernel values (64 MB) of one batch and the one before: more are not kept while others are used
NOBODY = np.empty(0, dtype=np.int64)
Later = Callable[..., Callable[[], "Answer"]]


@dataclass(frozen=True)
class Answer:
    """Kernel values inside a batch, its scores without the part of `before`, and kernel values against those."""

    samples: Samples
    before: Samples
    K: NDArray[Any]  # (s, batch, batch)
    G: Float64  # (s, batch, m)
    between: NDArray[Any]  # (s, batch, before)

    def scores(self, coef: Float64) -> Float64:
        """(s, batch, m) under coefficients of which only those of `before` have changed since."""
        learnt = np.flatnonzero(coef[self.before].any(axis=1))
        if len(learnt):
            self.G[...] += _product(self.between[:, :, learnt], coef[self.before[learnt]])
        return self.G


def fits(stack: KernelStack, samples: Samples, before: Samples) -> bool:
    """Whether a batch may be asked for ahead. By sizes only: not who works must decide what is summed first."""
    return stack.s * len(samples) * (len(samples) + len(before)) <= LARGEST


def answer(stack: KernelStack, source: Source, coef: Float64, samples: Samples, before: Samples) -> Answer:
    """Ask all workers about one batch; coefficients of `before` are not looked at, and may change meanwhile."""
    others = np.asarray(coef.any(axis=1))
    others[before] = False
    support = np.flatnonzero(others)
    pieces, chunks = source.pieces(samples), source.chunks(support) if len(support) else []
    inside = [samples, before] if len(before) else [samples]

    def tasks() -> Iterator[tuple[Any, ...]]:
        for rows in pieces:
            yield from ((source, rows, columns, None) for columns in inside)
            yield from ((source, rows, columns, coef[columns]) for columns in chunks)

    size, s = len(samples), stack.s
    small = size * (len(support) + size + len(before)) * s <= SMALL
    answers = iter(itertools.starmap(_task, tasks()) if small else stack.runtime.map(_task, tasks()))
    values = [np.empty((s, size, len(columns)), stack.dtype) for columns in inside]
    G = np.zeros((s, size, coef.shape[1]))
    start = 0
    for rows in pieces:
        here = slice(start, start + len(rows))
        for block in values:
            block[:, here] = next(answers)
        for _ in chunks:
            G[:, here] += next(answers)
        start += len(rows)
    for _ in answers:  # lets the runtime finish
        pass
    return Answer(samples, before, values[0], G, values[-1])


@contextmanager
def asking(runtime: Runtime) -> Iterator[Later]:
    """A function that starts another one and returns what waits for it: on a thread of its own, which asks the workers,
    or at once where one thread is all there is to be."""
    if runtime.workers == 1 and not runtime.remote:
        yield _at_once
        return
    with ThreadPoolExecutor(1, thread_name_prefix="dmkl-ahead") as thread:
        yield lambda function, *arguments: thread.submit(function, *arguments).result


def _at_once(function: Callable[..., Answer], *arguments: Any) -> Callable[[], Answer]:
    found = function(*arguments)
    return lambda: found


def _task(source: Source, rows: Samples, columns: Samples, coef: Float64 | None) -> NDArray[Any]:
    """Kernel values, or the scores that coefficients of some columns give."""
    values = source.cross(rows, columns)
    return values if coef is None else _product(values, coef)


def _product(values: NDArray[Any], coef: Float64) -> NDArray[Any]:
    return np.asarray(np.matmul(values, coef.astype(values.dtype)))
