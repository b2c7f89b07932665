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

from dmkl.data import Dataset, View
from dmkl.errors import OutputError, StoreError
from dmkl.files import make_folder, writing
from dmkl.kernels import Bank
from dmkl.model.model import Model
from dmkl.store.arrays import get, put_array, read_header
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
        store = ZipStore(path, mode="r")
        group = zarr.open_group(store, mode="r")
        header = read_header(group, KIND, SCHEMA, str(path))
        arrays: dict[str, Any] = {name: get(group[name]) for name in ARRAYS}
        everything = np.arange(len(arrays["samples"]))
        views: dict[str, View] = {}
        if header["dataset"]:
            stored = StoredViews(group, header["dataset"])
            views = {name: stored.take(name, everything, ROWS) for name in stored.entries}
        store.close()
        return Model(
            bank=Bank.from_recipes(header["kernels"], int(header["n"])),
            views=views,
            task=str(header["task"]),
            classes=tuple(header["classes"]),
            about=header["about"],
            per_kernel=bool(header.get("per_kernel", False)),
            **arrays,
        )
    except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is not a readable model ({type(error).__name__}: {error})") from error
