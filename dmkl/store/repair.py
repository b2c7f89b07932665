"""Repair of damaged tiles: a tile that can no longer be read is computed again from the samples in the store.

Every task that reads a stack reads tiles with `sound_tile`, in whatever process it runs, so each repair is recorded in
the store, one line in `mended.jsonl`. Solvers report new lines between rounds.
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

LOG = "mended.jsonl"  # part of the format


def sound_tile(store: KernelStore, a: int, i: int, j: int) -> NDArray[np.float32]:
    """K_a[block i, block j]; a tile that is damaged or missing is written anew first, with the bits it had."""
    try:
        return store.read_tile(a, i, j)
    except UnusableTile as damage:
        _repair(store, i, j, damage)
    return store.read_tile(a, i, j)


def _repair(store: KernelStore, i: int, j: int, damage: UnusableTile) -> None:
    try:
        run_task(fill_tile, str(store.path), store.id, i, j)
    except StoreError as error:
        raise StoreError(
            f"{damage.message}; the samples that it was computed from are lost too ({error.message})",
            "remove the store and build it again with: dmkl kernels",
        ) from error
    except (OutputError, ResourceError) as error:  # a full disk, or a store that may not be written to
        raise type(error)(f"{damage.message}; {error.message}", error.hint) from error
    facts = {"time": round(time.time(), 3), "tile": [i, j], "was": damage.what, "file": str(store.tile_path(i, j))}
    append_line(store.path / LOG, json.dumps(facts))


class RepairLog:
    """The repairs of a store's tiles, by any process, since this object was made."""

    def __init__(self, store: Path) -> None:
        self._log = store / LOG
        self._reported = len(self._lines())

    def news(self) -> list[str]:
        """One sentence for each tile repaired since the last call."""
        lines = self._lines()
        fresh, self._reported = lines[self._reported :], len(lines)
        return list(dict.fromkeys(_sentence(json.loads(line)) for line in fresh))  # two may have met the same damage

    def _lines(self) -> list[str]:
        try:
            return self._log.read_text().splitlines()
        except FileNotFoundError:
            return []


def _sentence(facts: dict[str, object]) -> str:
    return f"a tile was {facts['was']} and has been computed again: {facts['file']}"
