"""Repeating a finished run with the same configuration and memory limit, and comparing the results."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmkl._util.files import finite, read_json
from dmkl._util.types import Table
from dmkl.config import Config, Settings, parse_config
from dmkl.errors import OutputError
from dmkl.model import load_model
from dmkl.model.model import ARRAYS
from dmkl.run.directory import RunDirectory

SCORE_KEYS = ("metrics", "average", "best_single")  # of a summary's score; the others are times
TRAIN_KEYS = ("gap", "objective", "rounds", "passes", "svm_calls")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between the results of two runs, and changes of versions and machine, as sentences."""

    differences: list[str]
    changed: list[str]

    @property
    def same(self) -> bool:
        return not self.differences


def recorded(run: RunDirectory, settings: Settings) -> tuple[Config, int]:
    """The configuration of a finished run under the given settings, and its memory limit in bytes.

    The limit is repeated too: the batches of classes depend on it, and on them the last bits of sums.
    """
    if not run.scores.is_file():
        raise OutputError(f"{run.path} holds no finished run", "run the same dmkl train command again to finish it")
    config = parse_config(read_json(run.config), overrides=settings, source=f"run {run.path}")
    return config, int(read_json(run.manifest).get("memory", 0))


def compare(first: RunDirectory, second: RunDirectory) -> Comparison:
    """Compare data, kernels, model arrays (bit for bit), certificate and scores; list changed versions and machines."""
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
            found.append(f"model {name}: shape {a.shape} before, {b.shape} now")
        elif a.tobytes() != b.tobytes():
            off = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            found.append(f"model {name}: {int((a != b).sum())} of {a.size} values differ, by {off:.2g} at most")
    return found


def _summaries(before: Table, after: Table) -> list[str]:
    parts = [("tune", "formulation")] + [("train", key) for key in TRAIN_KEYS] + [("score", key) for key in SCORE_KEYS]
    values = [(key, *(finite(summary.get(part, {}).get(key)) for summary in (before, after))) for part, key in parts]
    return [f"{key}: {old} before, {new} now" for key, old, new in values if old != new]
