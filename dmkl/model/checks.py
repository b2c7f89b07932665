"""Whether the parts of a model that was read from a file fit each other: nothing else looks before it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmkl.model.model import Model
from dmkl.store.views import check_classes


def check_model(model: Model) -> None:
    """ValueError that names the first part that does not fit."""
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
            raise ValueError(f"{name} holds what is no number")
    if type(model.bank.n) is not int or (np.diff(model.samples, prepend=-1) < 1).any() or _last(model) >= model.bank.n:
        raise ValueError(f"samples are not some of {model.bank.n}")
    _check_views(model)


def _last(model: Model) -> int:
    return int(model.samples[-1]) if len(model.samples) else -1


def _check_views(model: Model) -> None:
    widths: Any = model.about["widths"]
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
            raise ValueError(f"view '{name}' holds what is no number")
