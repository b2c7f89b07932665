"""dmkl: multiple kernel learning with certificates, from a laptop to a SLURM cluster."""

from typing import TYPE_CHECKING, Any

from dmkl.version import __version__

if TYPE_CHECKING:
    from dmkl.estimators import (
        KernelBank,
        L1MKLClassifier,
        LpMKLClassifier,
        MIKLClassifier,
        ObscureClassifier,
        SharedMKLClassifier,
        SpicyMKLClassifier,
        SpicyMKLRegressor,
        UniformMKLClassifier,
        UniformMKLRegressor,
        VSKLClassifier,
    )
    from dmkl.kernels import repair
    from dmkl.solvers import (
        L1MKL,
        MIKL,
        VSKL,
        Fit,
        LpMKL,
        Obscure,
        SharedMKL,
        SpicyMKL,
        UniformMKL,
        grid,
        solve,
        solve_path,
    )
    from dmkl.stack import KernelStack
    from dmkl.tuning import Tuned, tune

_SOLVERS = (
    "Fit",
    "L1MKL",
    "LpMKL",
    "MIKL",
    "Obscure",
    "SharedMKL",
    "SpicyMKL",
    "UniformMKL",
    "VSKL",
    "grid",
    "solve",
    "solve_path",
)

__all__ = [
    "L1MKL",
    "MIKL",
    "VSKL",
    "Fit",
    "KernelBank",
    "KernelStack",
    "L1MKLClassifier",
    "LpMKL",
    "LpMKLClassifier",
    "MIKLClassifier",
    "Obscure",
    "ObscureClassifier",
    "SharedMKL",
    "SharedMKLClassifier",
    "SpicyMKL",
    "SpicyMKLClassifier",
    "SpicyMKLRegressor",
    "Tuned",
    "UniformMKL",
    "UniformMKLClassifier",
    "UniformMKLRegressor",
    "VSKLClassifier",
    "__version__",
    "grid",
    "repair",
    "solve",
    "solve_path",
    "tune",
]

_HOMES = {"KernelBank": "dmkl.estimators", "KernelStack": "dmkl.stack", "repair": "dmkl.kernels"}
_HOMES |= dict.fromkeys(_SOLVERS, "dmkl.solvers") | dict.fromkeys(("Tuned", "tune"), "dmkl.tuning")
_HOMES |= {name: "dmkl.estimators" for name in __all__ if name.endswith(("Classifier", "Regressor"))}


def __getattr__(name: str) -> Any:
    """Import on first use: `dmkl --help` should not wait for numpy."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'dmkl' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
