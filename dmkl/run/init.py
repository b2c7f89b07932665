"""A first configuration for a data file: what `dmkl init` writes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmkl._util.files import make_folder, write_atomically
from dmkl._util.types import Table
from dmkl.config import Config, json_schema, parse_config, toml_key, toml_value
from dmkl.data.summary import DataSummary, ViewSummary, summarise
from dmkl.errors import OutputError, ResourceError
from dmkl.kernels.functions import KERNELS
from dmkl.oracles import ORACLES
from dmkl.problems import FORMULATIONS
from dmkl.run.prepare import prepare_data
from dmkl.runtime.jobs.profile import Profile
from dmkl.solvers.methods import method_names
from dmkl.version import __version__

GRID = ("0.5 mean", "1 mean", "2 mean")  # a median is 0 where most values are equal
MOST_COLUMN_VIEWS = 60  # a table with more columns gets no kernels for single columns
LINE_WIDTH = 100  # characters
FEW_KERNELS = 100  # of more kernels, most are expected to be useless


def schema() -> Table:
    """The JSON schema of configuration files, made from the registries."""
    return json_schema(KERNELS, FORMULATIONS, method_names(), ORACLES, Profile)


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


def first_config(paths: Sequence[str], out: Path, labels: str = "") -> tuple[str, DataSummary]:
    """Look at data files and write a configuration for them.

    Parameters
    ----------
    paths : sequence of str
        The data files.
    out : Path
        Where the configuration will be written; its paths are relative to this file.
    labels : str, optional
        The array or column that holds the labels; found by its name when it is empty.

    Returns
    -------
    (str, DataSummary)
        The text of the configuration, and the contents of the data.
    """
    seen = summarise(paths, labels)
    relative = [os.path.relpath(path, out.parent) for path in paths]
    kernels = len(prepare_data(_read(_text(seen, relative, ""), out)).bank)
    file = schema_file()
    text = (f"#:schema {file.as_uri()}\n" if file else "") + _text(seen, relative, _formulation(seen, kernels))
    _read(text, out)
    return text, seen


def _read(text: str, out: Path) -> Config:
    return parse_config(tomllib.loads(text), base=out.parent, source=f"file {out}")


def _text(seen: DataSummary, paths: list[str], formulation: str) -> str:
    classes = f"{len(seen.labels.classes)} classes" if seen.labels.classes else "real targets"
    parts = [
        f"# {len(seen.labels):,} samples, {seen.labels.task}: {classes}. Train with: dmkl train FILE",
        "",
        "[data]",
        f"path = {toml_value(paths[0] if len(paths) == 1 else paths)}",
        f"labels = {toml_value(seen.labels_name)}",
        f"task = {toml_value(seen.task)}  # auto reads whole numbers and text as classes, other numbers as targets",
        "test = 0.3  # fraction of held-out samples; or split = 'NAME' of a 0/1 array, 1 for training",
        *[_view(view) for view in seen.views],
        *[_kernel(view) for view in seen.views],
        formulation,
        "",
        "[solve]",
        "tol = 1e-3        # relative gap to certify",
        "baselines = true  # also score the average kernel and every kernel alone",
    ]
    return "\n".join(parts) + "\n"


def _view(view: ViewSummary) -> str:
    lines = ["", f"[views.{toml_key(view.name)}]  # {'; '.join(view.facts)}"]
    lines += [f"# left out: column {name!r} {reason}" for name, reason in view.left_out.items()]
    lines += [f"array = {toml_value(view.array)}"] if view.array else []
    if view.columns:
        lines += _columns(view.columns if view.left_out else ("*",))
    lines += [f"kind = {toml_value(view.kind)}"] if view.kind != "features" else []
    lines += ["symmetric = false"] if not view.symmetric else []
    if _each(view):
        lines.append("each = true  # also makes every column a view of its own, because their scales differ")
    return "\n".join(lines)


def _columns(names: Sequence[str]) -> list[str]:
    """A list of columns, broken into lines."""
    lines = ["columns = ["]
    for name in names:
        if len(lines[-1]) + len(name) > LINE_WIDTH:
            lines.append("   ")
        lines[-1] += f" {toml_value(name)},"
    return [*lines[:-1], lines[-1].rstrip(",") + " ]"]


def _each(view: ViewSummary) -> bool:
    """Whether the columns of a table also become views of their own."""
    return view.unequal and len(view.columns) <= MOST_COLUMN_VIEWS


def _kernel(view: ViewSummary) -> str:
    if view.kind == "kernel":
        kernel = "precomputed" if view.definite else "similarity"
        scaled = 'normalise = "unit-mean"  # gives kernels of different scale equal weight at the start'
        own = [scaled] if view.definite else []
    else:
        kernel = "distance" if view.kind == "distance" else "chi2" if view.histograms else "rbf"
        own = [f"width = {toml_value(GRID)}  # one kernel for each width, in multiples of the mean distance"]
    views = [view.name, f"{view.name}.*"] if _each(view) else view.name
    return "\n".join(["", "[[kernels]]", f"kernel = {toml_value(kernel)}", f"views = {toml_value(views)}", *own])


def _formulation(seen: DataSummary, kernels: int) -> str:
    """The [formulation] table with the reason for the choice."""
    name, reason, constants = _chosen(seen, kernels)
    lines = ["", f"[formulation]  # {reason}", f"name = {toml_value(name)}"]
    return "\n".join([*lines, *(f"{key} = {toml_value(value)}" for key, value in constants.items())])


def _chosen(seen: DataSummary, kernels: int) -> tuple[str, str, dict[str, str | float]]:
    """A formulation for the data, the reason for it, and its constants."""
    if seen.labels.task == "regression":
        scale = float(np.linalg.norm(seen.labels.values - seen.labels.values.mean()))
        C = float(f"{max(scale, 1e-6):.1g}")
        return "spicy", "regression with few kernels; a larger C selects fewer", {"loss": "squared", "C": C}
    if not all(view.definite for view in seen.views):
        return "mikl", "accepts similarities that are not positive semidefinite", {"norm": "21;2", "lam": 1.0}
    if kernels == 1:
        return "uniform", "one kernel, so there are no weights to learn", {"C": 10.0}
    if kernels <= FEW_KERNELS:
        return "vskl", "weights for each class; few kernels of each view, any number of views", {"q": 2.0, "C": 10.0}
    return "l1", f"selects few of the {kernels:,} kernels", {"C": 10.0}
