"""A first configuration for data somebody has just brought: what `dmkl init` writes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.files import make_folder, write_atomically
from dmkl.config import Config, json_schema, parse_config, toml_key, toml_value
from dmkl.data.look import Look, ViewLook, look
from dmkl.errors import OutputError, ResourceError
from dmkl.kernels.functions import KERNELS
from dmkl.oracles import ORACLES
from dmkl.run.prepare import prepare
from dmkl.runtime.jobs.profile import Profile
from dmkl.solvers import FORMULATIONS
from dmkl.version import __version__

GRID = ("0.5 mean", "1 mean", "2 mean")  # a median is 0 where most values are equal
FEW_COLUMNS = 60  # up to so many each gets kernels of its own
WIDTH = 100  # of a line
FEW_KERNELS = 100  # beyond, most are expected to be useless


def schema() -> dict[str, Any]:
    """The JSON schema of experiments, from the registries as they are now."""
    return json_schema(KERNELS, FORMULATIONS, ORACLES, Profile)


def schema_file() -> Path | None:
    """Write the JSON schema into the user's cache, where editors find it by the first line of a configuration.

    Its name holds the version of dmkl, so that a configuration is checked against the version that wrote it. None if
    the cache cannot be written.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "dmkl"
        path = folder / f"dmkl-{__version__}.schema.json"
        make_folder(folder)
        write_atomically(path, (json.dumps(schema(), indent=1, allow_nan=False) + "\n").encode())
    except (OSError, OutputError, ResourceError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return path


def first_config(paths: Sequence[str], out: Path, labels: str = "") -> tuple[str, Look]:
    """The text of a configuration for `out`, which reads and makes kernels of these data, and what they hold."""
    seen = look(paths, labels)
    near = [os.path.relpath(path, out.parent) for path in paths]
    kernels = len(prepare(_read(_text(seen, near, ""), out)).bank)
    file = schema_file()
    text = (f"#:schema {file.as_uri()}\n" if file else "") + _text(seen, near, _formulation(seen, kernels))
    _read(text, out)
    return text, seen


def _read(text: str, out: Path) -> Config:
    return parse_config(tomllib.loads(text), base=out.parent, source=f"file {out}")


def _text(seen: Look, paths: list[str], formulation: str) -> str:
    classes = f"{len(seen.answer.classes)} classes" if seen.answer.classes else "numbers to predict"
    parts = [
        f"# {len(seen.answer):,} samples, {seen.answer.task}: {classes}. Trains as it is: dmkl train FILE",
        "",
        "[data]",
        f"path = {toml_value(paths[0] if len(paths) == 1 else paths)}",
        f"labels = {toml_value(seen.labels)}",
        f"task = {toml_value(seen.task)}  # auto takes whole numbers and text for classes, other numbers for a target",
        "test = 0.3  # held out for the score; or split = the name of a 0/1 array, 1 for training samples",
        *[_view(view) for view in seen.views],
        *[_kernel(view) for view in seen.views],
        formulation,
        "",
        "[solve]",
        "tol = 1e-3        # the relative gap to prove",
        "baselines = true  # also score the average kernel and every kernel alone",
    ]
    return "\n".join(parts) + "\n"


def _view(view: ViewLook) -> str:
    lines = ["", f"[views.{toml_key(view.name)}]  # {'; '.join(view.facts)}"]
    lines += [f"# left out: column {name!r} {reason}" for name, reason in view.left_out.items()]
    lines += [f"array = {toml_value(view.array)}"] if view.array else []
    if view.columns:
        lines += _columns(view.columns if view.left_out else ("*",))
    lines += [f"kind = {toml_value(view.kind)}"] if view.kind != "features" else []
    lines += ["symmetric = false"] if not view.symmetric else []
    lines += ["each = true  # every column is a view of its own too: their scales differ"] if _each(view) else []
    return "\n".join(lines)


def _columns(names: Sequence[str]) -> list[str]:
    """A list over as many lines as it takes."""
    lines = ["columns = ["]
    for name in names:
        if len(lines[-1]) + len(name) > WIDTH:
            lines.append("   ")
        lines[-1] += f" {toml_value(name)},"
    return [*lines[:-1], lines[-1].rstrip(",") + " ]"]


def _each(view: ViewLook) -> bool:
    return view.unequal and len(view.columns) <= FEW_COLUMNS


def _kernel(view: ViewLook) -> str:
    if view.kind == "kernel":
        kernel = "precomputed" if view.definite else "similarity"
        own = ['normalise = "unit-mean"  # so that kernels of different scale start equal'] if view.definite else []
    else:
        kernel = "distance" if view.kind == "distance" else "chi2" if view.histograms else "rbf"
        own = [f"width = {toml_value(GRID)}  # a list is a grid; multiples of the mean distance"]
    views = [view.name, f"{view.name}.*"] if _each(view) else view.name
    return "\n".join(["", "[[kernels]]", f"kernel = {toml_value(kernel)}", f"views = {toml_value(views)}", *own])


def _formulation(seen: Look, kernels: int) -> str:
    """The table with its reasons; the README has all formulations."""
    name, why, constants = _chosen(seen, kernels)
    lines = ["", f"[formulation]  # {why}", f"name = {toml_value(name)}"]
    return "\n".join([*lines, *(f"{key} = {toml_value(value)}" for key, value in constants.items())])


def _chosen(seen: Look, kernels: int) -> tuple[str, str, dict[str, Any]]:
    if seen.answer.task == "regression":
        scale = float(np.linalg.norm(seen.answer.values - seen.answer.values.mean()))
        C = float(f"{max(scale, 1e-6):.1g}")
        return "spicy", "few kernels for a target; a larger C takes fewer", {"loss": "squared", "C": C}
    if not all(view.definite for view in seen.views):
        return "mikl", "takes similarities that are no kernels", {"norm": "21;2", "lam": 1.0}
    if kernels == 1:
        return "uniform", "one kernel, so there is nothing to weigh", {"C": 10.0}
    if kernels <= FEW_KERNELS:
        return "vskl", "weights per class; few kernels inside a view, every view may be used", {"q": 2.0, "C": 10.0}
    return "l1", f"few of {kernels:,} kernels", {"C": 10.0}
