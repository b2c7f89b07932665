"""A tile that can no longer be read is computed again: the store holds the samples it was made from.

Every reader of a stack comes through `sound_tile`, in whatever process its tasks run, so what was done is written into
the store: `mended.jsonl`, one line a tile. Solvers tell of new lines between rounds.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmkl._util.files import append_line
from dmkl.errors import OutputError, ResourceError, StoreError
from dmkl.runtime.base import run_task
from dmkl.store.build import fill_tile
from dmkl.store.store import KernelStore, UnusableTile

LOG = "mended.jsonl"


def sound_tile(store: KernelStore, a: int, i: int, j: int) -> NDArray[np.float32]:
    """K_a[block i, block j]; a tile that is damaged or gone is written anew first, with the bits it had."""
    try:
        return store.read_tile(a, i, j)
    except UnusableTile as damage:
        _mend(store, i, j, damage)
    return store.read_tile(a, i, j)


def _mend(store: KernelStore, i: int, j: int, damage: UnusableTile) -> None:
    try:
        run_task(fill_tile, str(store.path), store.id, i, j)
    except StoreError as error:
        raise StoreError(
            f"{damage.message}; what it was computed from is lost too ({error.message})",
            "remove the store and build it again with: dmkl kernels",
        ) from error
    except (OutputError, ResourceError) as error:  # a disk that is full, a store that is not ours
        raise type(error)(f"{damage.message}; {error.message}", error.hint) from error
    facts = {"time": round(time.time(), 3), "tile": [i, j], "was": damage.what, "file": str(store.tile_path(i, j))}
    append_line(store.path / LOG, json.dumps(facts))


class Mended:
    """Tiles of a store mended since this was made, by whatever process, told once each."""

    def __init__(self, store: Path) -> None:
        self._log = store / LOG
        self._told = len(self._lines())

    def news(self) -> list[str]:
        lines = self._lines()
        fresh, self._told = lines[self._told :], len(lines)
        return list(dict.fromkeys(_told(json.loads(line)) for line in fresh))  # two may have met the same damage

    def _lines(self) -> list[str]:
        try:
            return self._log.read_text().splitlines()
        except FileNotFoundError:
            return []


def _told(facts: dict[str, object]) -> str:
    return f"a tile was {facts['was']} and has been computed again: {facts['file']}"
