"""A run done again: the same configuration, the same memory, and what came out different."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from dmkl.config import Config, Settings, parse_config
from dmkl.errors import OutputError, StoreError
from dmkl.model import load_model
from dmkl.model.files import ARRAYS
from dmkl.run.rundir import RunDirectory, finite

SCORES = ("metrics", "average", "best_single")  # of a summary's score; the rest is times
TRAIN = ("gap", "objective", "rounds", "passes", "svm_calls")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What differs between two runs, in words, and what changed around them."""

    differences: list[str]
    changed: list[str]

    @property
    def same(self) -> bool:
        return not self.differences


def recorded(run: RunDirectory, settings: Settings) -> tuple[Config, int]:
    """The configuration of a finished run, with other places to run at, and its limit of memory.

    The limit is part of what is repeated: batches of classes, and so the last bits of sums, follow from it.
    """
    if not run.scores.is_file():
        raise OutputError(f"{run.path} holds no finished run", "finish it with the same dmkl train command")
    config = parse_config(read_json(run.config), overrides=settings, source=f"run {run.path}")
    return config, int(read_json(run.manifest).get("memory", 0))


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {path}: {error}", "the run directory is damaged; train it again") from None
    if not isinstance(found, dict):
        raise StoreError(f"{path} is not what dmkl wrote", "the run directory is damaged; train it again")
    return found


def compare(first: RunDirectory, second: RunDirectory) -> Comparison:
    """Data and kernels, model arrays bit for bit, certificate and scores; versions and machines beside them."""
    before, after = read_json(first.manifest), read_json(second.manifest)
    differences = [
        f"the {what} changed since the first run"
        for what, key in (("data", "data"), ("kernels", "kernel_hash"))
        if before.get(key) != after.get(key)
    ]
    differences += _models(first, second) + _summaries(read_json(first.scores), read_json(second.scores))
    versions = {**before.get("versions", {}), "python": before.get("python")}
    now = {**after.get("versions", {}), "python": after.get("python")}
    changed = [f"{name} {versions[name]} -> {now.get(name)}" for name in versions if versions[name] != now.get(name)]
    places = [(key, before.get(key), after.get(key)) for key in ("host", "platform", "cpu", "threads", "memory")]
    changed += [f"{key} {old} -> {new}" for key, old, new in places if old != new]
    return Comparison(differences, changed)


def _models(first: RunDirectory, second: RunDirectory) -> list[str]:
    one, other = load_model(first.model), load_model(second.model)
    found = []
    for name in ARRAYS:
        a, b = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        if a.shape != b.shape:
            found.append(f"model {name}: shape {a.shape}, then {b.shape}")
        elif a.tobytes() != b.tobytes():
            off = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            found.append(f"model {name}: {int((a != b).sum())} of {a.size} values differ, by {off:.2g} at most")
    return found


def _summaries(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    parts = [("tune", "formulation")] + [("train", key) for key in TRAIN] + [("score", key) for key in SCORES]
    values = [(key, *(finite(summary.get(part, {}).get(key)) for summary in (before, after))) for part, key in parts]
    return [f"{key}: {old}, then {new}" for key, old, new in values if old != new]
