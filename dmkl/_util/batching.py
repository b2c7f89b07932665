"""Work in batches that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_batches(items: Iterable[T], size: Callable[[list[T]], float], room: float) -> Iterator[list[T]]:
    """The items in their order, in batches whose `size` is at most `room`; an item that is larger is a batch alone.

    `size` is asked about every batch that grows by one item. It is asked in order, so it may remember the last batch
    where its answer is expensive to compute from the beginning.
    """
    batch: list[T] = []
    for item in items:
        if batch and size([*batch, item]) > room:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
