"""A model as one file: a zipped Zarr group of plain arrays and JSON. Opening it runs nothing."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import ZipStore

from dmkl._util.archives import check_members
from dmkl._util.files import make_folder, writing
from dmkl.data import Dataset, View
from dmkl.errors import OutputError, ResourceError, StoreError, one_line
from dmkl.kernels import Bank
from dmkl.model.checks import check_model
from dmkl.model.model import Model
from dmkl.store.format import put_array
from dmkl.store.validate import array_of, get, read_header
from dmkl.store.views import StoredViews, describe_dataset, write_dataset
from dmkl.version import __version__

SCHEMA = 1
KIND = "model"
ROWS = 4096  # support samples in one chunk
ARRAYS = ("samples", "weights", "scales", "coef", "shift", "intercept")


def save_model(path: Path, model: Model) -> None:
    """Write under another name, then rename."""
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
    """Read a model file, refusing what is not one."""
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
    arrays: dict[str, Any] = {name: get(array_of(group, name)) for name in ARRAYS}
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
