"""dmkl: multiple kernel learning with certificates, from a laptop to a SLURM cluster."""

from typing import TYPE_CHECKING, Any

from dmkl.version import __version__

if TYPE_CHECKING:
    from dmkl.solvers import Fit, UniformMKL, solve
    from dmkl.stack import KernelStack

__all__ = ["Fit", "KernelStack", "UniformMKL", "__version__", "solve"]

_HOMES = {
    "KernelStack": "dmkl.stack",
    "Fit": "dmkl.solvers",
    "UniformMKL": "dmkl.solvers",
    "solve": "dmkl.solvers",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `dmkl --help` should not wait for numpy."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'dmkl' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
