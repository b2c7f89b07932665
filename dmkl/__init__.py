"""dmkl: multiple kernel learning with certificates, from a laptop to a SLURM cluster.

Names are imported when they are first used, so that `dmkl --help` does not wait for numpy. The classes of formulations
and estimators are found in their registries: a new one needs no line here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dmkl.version import __version__ as __version__

if TYPE_CHECKING:  # for editors and type checkers; at run time `_PLACES` and the registries decide
    from dmkl.estimators import *  # noqa: F403 - all of its classes, without a list of them here
    from dmkl.kernels import repair as repair
    from dmkl.solvers import *  # noqa: F403 - formulations, `Fit`, `solve` and its companions
    from dmkl.solvers.obscure_structured import Pair as Pair
    from dmkl.solvers.obscure_structured import structured as structured
    from dmkl.stack import KernelStack as KernelStack
    from dmkl.tuning import Tuned as Tuned
    from dmkl.tuning import tune as tune

_PLACES = {
    "Fit": "dmkl.solvers",
    "KernelBank": "dmkl.estimators",
    "KernelStack": "dmkl.stack",
    "Tuned": "dmkl.tuning",
    "grid": "dmkl.solvers",
    "Pair": "dmkl.solvers.obscure_structured",
    "repair": "dmkl.kernels",
    "solve": "dmkl.solvers",
    "solve_path": "dmkl.solvers",
    "structured": "dmkl.solvers.obscure_structured",
    "tune": "dmkl.tuning",
}


def __getattr__(name: str) -> Any:  # Any: a class or a function
    if name == "__all__":
        return __dir__()
    if name in _PLACES:
        found = getattr(import_module(_PLACES[name]), name)
    elif name[0].isupper():  # no submodule, whose name is asked for here before it is imported
        found = _registered(name)
    else:
        found = None
    if found is None:
        raise AttributeError(f"module 'dmkl' has no attribute '{name}'")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names; they are `__all__` too."""
    from dmkl.estimators import ESTIMATORS
    from dmkl.problems import FORMULATIONS

    classes = [*FORMULATIONS.values(), *ESTIMATORS]
    return sorted({"__version__", *_PLACES, *(cls.__name__ for cls in classes)})


def _registered(name: str) -> Any:  # Any: a class
    """The class of this name among the formulations and estimators; None if there is none."""
    from dmkl.problems import FORMULATIONS

    found = next((cls for cls in FORMULATIONS.values() if cls.__name__ == name), None)
    if found is None:
        from dmkl.estimators import ESTIMATORS

        found = next((cls for cls in ESTIMATORS if cls.__name__ == name), None)
    return found
