"""Configurations of the bundled examples."""

from __future__ import annotations

from typing import Any

from dmkl._util.registry import Registry

EXAMPLES: Registry[dict[str, Any]] = Registry("example")
EXAMPLES.register(
    "digits",
    {
        "data": {"example": "digits", "test": 0.3},
        "kernels": [{"kernel": "rbf", "width": ["0.5 median", "1 median", "2 median"]}],
        "formulation": {"name": "vskl", "q": 2.0, "C": 10.0},
        "solve": {"tol": 1e-3, "baselines": True},
    },
)
EXAMPLES.register(
    "diabetes",
    {
        "data": {"example": "diabetes", "task": "regression", "test": 0.3},
        "views": {"x": {"columns": ["*"], "each": True}},
        "kernels": [{"kernel": "rbf", "views": ["x", "x.*"], "width": ["0.5 mean", "1 mean", "2 mean", "4 mean"]}],
        "formulation": {"name": "spicy", "loss": "squared", "C": 2000.0},
        "solve": {"tol": 1e-3, "baselines": True},
    },
)
