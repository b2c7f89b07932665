"""A model as one file: a zipped Zarr group of plain arrays and JSON. Opening a file runs no code from it."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import zarr
from zarr.storage import ZipStore

from dmkl._util.files import check_members, make_folder, writing
from dmkl.data import Dataset, View
from dmkl.errors import OutputError, ResourceError, StoreError, one_line
from dmkl.kernels import Bank
from dmkl.model.model import Model
from dmkl.store.format import put_array
from dmkl.store.validate import array_of, get, read_header
from dmkl.store.views import StoredViews, check_classes, describe_dataset, write_dataset
from dmkl.version import __version__

SCHEMA = 1
KIND = "model"
ROWS = 4096  # support samples in a chunk of the file
ARRAYS = ("samples", "weights", "scales", "coef", "shift", "intercept")


def save_model(path: Path, model: Model) -> None:
    """Write a model to a file; an older file is replaced as a whole."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            store = ZipStore(temporary, mode="w")
            support = Dataset(model.views) if model.views else None
            header = {
                "kind": KIND,
                "schema": SCHEMA,
                "version": __version__,
                "n": model.bank.n,
                "kernels": model.bank.recipes(),
                "task": model.task,
                "per_kernel": model.per_kernel,
                "classes": list(model.classes),
                "about": json.loads(json.dumps(model.about)),
                "dataset": describe_dataset(support) if support else None,
            }
            group = zarr.create_group(store, attributes={"dmkl": header})
            if support:
                write_dataset(group, support, ROWS)
            for name in ARRAYS:
                put_array(group, name, getattr(model, name))
            store.close()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def load_model(path: Path) -> Model:
    """Read a model from a file.

    Raises
    ------
    OutputError
        If there is no such file.
    StoreError
        If the file is damaged or is not a model.
    """
    if not path.is_file():
        raise OutputError(f"no model at {path}", "train one with: dmkl train")
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(archive, path.stat().st_size)
        with ZipStore(path, mode="r") as store:
            model = _read(zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False), str(path))
        check_model(model)
    except StoreError:
        raise
    except MemoryError:
        raise ResourceError(f"{path} needs more memory than there is") from None
    except Exception as error:  # parsers of damaged files fail in every possible way
        kind = type(error).__name__
        raise StoreError(f"{path} is not a readable model ({kind}: {one_line(error)})", "train it again") from error
    return model


def _read(group: zarr.Group, where: str) -> Model:
    header = read_header(group, KIND, SCHEMA, where)
    arrays = {name: get(array_of(group, name)) for name in ARRAYS}
    everything = np.arange(len(arrays["samples"]))
    views: dict[str, View] = {}
    if header["dataset"]:
        stored = StoredViews(group, header["dataset"], len(everything))
        views = {name: stored.take(name, everything, ROWS) for name in stored.entries}
    return Model(
        bank=Bank.from_recipes(header["kernels"], header["n"]),
        views=views,
        task=header["task"],
        classes=tuple(header["classes"]),
        about=header["about"],
        per_kernel=bool(header.get("per_kernel", False)),
        **arrays,
    )


def check_model(model: Model) -> None:
    """Refuse a model from a file whose parts do not fit each other; the ValueError names the first such part."""
    check_classes(model.task, model.classes)
    s, support = len(model.bank), len(model.samples)
    m = 1 if model.task in ("binary", "regression") else len(model.classes)
    columns = m * s if model.per_kernel else m
    shapes = {
        "samples": (support,),
        "weights": (m, s),
        "scales": (s,),
        "coef": (support, columns),
        "shift": (columns,),
        "intercept": (m,),
    }
    for name, shape in shapes.items():
        values = getattr(model, name)
        kind = "i" if name == "samples" else "f"
        if values.shape != shape or values.dtype.kind != kind:
            raise ValueError(f"{name} of shape {values.shape} and type {values.dtype}, not {shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite")
    beyond = len(model.samples) > 0 and int(model.samples[-1]) >= model.bank.n
    if type(model.bank.n) is not int or (np.diff(model.samples, prepend=-1) < 1).any() or beyond:
        raise ValueError(f"samples are not ascending numbers below {model.bank.n}")
    _check_views(model)


def _check_views(model: Model) -> None:
    widths = model.about["widths"]
    kinds = {kernel.view: kernel.function.view_kind for kernel in model.bank.kernels}
    model.bank.check_views(kinds)
    for name, kind in kinds.items():
        if type(widths[name]) is not int or widths[name] < 1:
            raise ValueError(f"view '{name}' has {widths[name]} columns")
        if kind != "features" and widths[name] != model.bank.n:
            raise ValueError(f"view '{name}' relates to {widths[name]} samples, not {model.bank.n}")
        if kind != "features":
            continue
        view = model.views[name]
        if view.kind != kind or view.values.shape != (len(model.samples), widths[name]):
            raise ValueError(f"view '{name}' has shape {view.values.shape}")
        numbers = view.values if isinstance(view.values, np.ndarray) else view.values.data
        if not np.isfinite(numbers).all():
            raise ValueError(f"view '{name}' has values that are not finite")
