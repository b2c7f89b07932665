"""The table of methods: which algorithms solve which formulation, one line a method.

A method is registered with the place of a function `build(formulation, problem) -> Solver`, which is imported when the
method is used. The first method that is registered for a formulation is its default. A formulation without lines of its
own has those of the class it derives from.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from dmkl.errors import ConfigError, did_you_mean
from dmkl.oracles import ORACLES
from dmkl.problems.base import Formulation
from dmkl.problems.mikl import MIKL
from dmkl.problems.obscure import Obscure
from dmkl.problems.shared import SharedMKL
from dmkl.problems.spicy import SpicyMKL
from dmkl.problems.uniform import UniformMKL
from dmkl.problems.vskl import L1MKL, VSKL, LpMKL, MixedNormMKL
from dmkl.solvers.problem import Problem, Solver

DEFAULT_ORACLE: Final = "smo"

Builder: TypeAlias = Callable[..., Solver]  # (formulation, problem), the formulation of the method's own class
F = TypeVar("F", bound=Formulation)


@dataclass(frozen=True)
class Method:
    """One way to solve a formulation."""

    name: str
    build: Builder | str  # the function, or its place "package.module:name"
    oracles: bool = False  # whether it solves SVMs, by an oracle that can be chosen
    when: Callable[..., bool] | None = None  # which constants of the formulation it is for; None for all

    def solver(self, formulation: Formulation, problem: Problem) -> Solver:
        """The solver of this problem; ConfigError or SolverError, before any work, for a problem it cannot solve."""
        build = self.build
        if isinstance(build, str):
            module, _, name = build.partition(":")
            build = getattr(importlib.import_module(module), name)
        return build(formulation, problem)


METHODS: dict[type[Formulation], list[Method]] = {}


def register(
    formulation: type[F],
    name: str,
    build: Builder | str,
    *,
    oracles: bool = False,
    when: Callable[[F], bool] | None = None,
) -> None:
    """Add a method of a formulation.

    Parameters
    ----------
    formulation : type
        The class of the formulation.
    name : str
        What `solve(method=)` calls it.
    build : callable or str
        `build(formulation, problem) -> Solver`, or its place "package.module:name".
    oracles : bool
        Whether it solves SVMs by the oracle that `solve(oracle=)` names.
    when : callable, optional
        Whether it is for a formulation with these constants; for all of them if left out.

    Raises
    ------
    ValueError
        If the formulation has a method of that name for the same constants.
    """
    methods = METHODS.setdefault(formulation, [])
    if any(method.name == name and method.when is when for method in methods):
        raise ValueError(f"method '{name}' of {formulation.__name__} is registered twice")
    methods.append(Method(name, build, oracles, when))


def methods_of(formulation: Formulation) -> list[Method]:
    """The methods for this formulation with these constants, the default first."""
    for kind in type(formulation).__mro__:
        if found := METHODS.get(kind):
            return [method for method in found if method.when is None or method.when(formulation)]
    raise ConfigError(f"no method solves {type(formulation).__name__}", "register one in dmkl/solvers/methods.py")


def method_names() -> list[str]:
    """The names of all methods, each once."""
    return sorted({method.name for methods in METHODS.values() for method in methods})


def find(formulation: Formulation, method: str | None = None, oracle: str | None = None) -> Method:
    """The method of this name, or the default; ConfigError for a method or an oracle that would not be used.

    The default oracle is accepted for every formulation, because configuration files name it by default.
    """
    ORACLES[oracle or DEFAULT_ORACLE]
    name, methods = type(formulation).__name__, methods_of(formulation)
    known = [one.name for one in methods]
    chosen = next((one for one in methods if not method or one.name == method), None)
    if chosen is None:
        raise ConfigError(f"unknown method '{method}' of {name}", did_you_mean(str(method), known))
    if not chosen.oracles and (oracle or DEFAULT_ORACLE) != DEFAULT_ORACLE:
        raise ConfigError(
            f"{name} solves no SVMs with method '{chosen.name}': oracle '{oracle}' would not be used",
            "leave the oracle out",
        )
    return chosen


def build(formulation: Formulation, problem: Problem) -> Solver:
    """The solver of this problem by the method and the oracle that it names."""
    return find(formulation, problem.method, problem.oracle).solver(formulation, problem)


def _hinge(formulation: UniformMKL) -> bool:
    return formulation.loss == "hinge"


def _other_loss(formulation: UniformMKL) -> bool:
    return formulation.loss != "hinge"


def _not_convex(formulation: MixedNormMKL) -> bool:
    return isinstance(formulation, VSKL) and formulation.q < 0.5


def _convex(formulation: MixedNormMKL) -> bool:
    return not _not_convex(formulation)


def _sum(formulation: SharedMKL) -> bool:
    return formulation.mode == "sum"


def _max(formulation: SharedMKL) -> bool:
    return formulation.mode == "max"


def _has_columns_solver(formulation: Obscure) -> bool:
    from dmkl.solvers.obscure_exact import solves

    return solves(formulation.own_loss())


def _bounded(formulation: Obscure) -> bool:
    """Steps of the 1 / t rate are as long as slopes at first: without a limit they leave the range of numbers."""
    return formulation.bounded


def _sum_to_gap(formulation: SharedMKL) -> bool:
    return _sum(formulation) and formulation.stop == "gap"


def _max_to_gap(formulation: SharedMKL) -> bool:
    return _max(formulation) and formulation.stop == "gap"


register(UniformMKL, "svm", "dmkl.solvers.fixed_weights:build", oracles=True, when=_hinge)
register(UniformMKL, "newton", "dmkl.solvers.fixed_weights:build_any_loss", when=_other_loss)
register(UniformMKL, "proximal", "dmkl.solvers.fixed_weights:build_any_loss", when=_other_loss)
for mixed_norm in (VSKL, L1MKL, LpMKL):
    register(mixed_norm, "automatic", "dmkl.solvers.mixed_norm:build", oracles=True, when=_convex)
    register(mixed_norm, "newton", "dmkl.solvers.mixed_norm:build", oracles=True, when=_convex)
    register(mixed_norm, "interior", "dmkl.solvers.mixed_norm:build", oracles=True, when=_convex)
    register(mixed_norm, "mirror", "dmkl.solvers.mixed_norm:build", oracles=True, when=_convex)
    register(mixed_norm, "mirror-paper", "dmkl.solvers.mixed_norm:build", oracles=True, when=_convex)
register(VSKL, "reweighted", "dmkl.solvers.reweighted:build", oracles=True, when=_not_convex)
register(SpicyMKL, "newton", "dmkl.solvers.spicy:build")
register(SpicyMKL, "proximal", "dmkl.solvers.spicy:build")
register(SharedMKL, "bundle", "dmkl.solvers.shared_sum:build", oracles=True, when=_sum_to_gap)
register(SharedMKL, "mirror", "dmkl.solvers.shared_sum:build", oracles=True, when=_sum_to_gap)
register(SharedMKL, "mirror-paper", "dmkl.solvers.shared_full:build", oracles=True, when=_sum)
register(SharedMKL, "sa", "dmkl.solvers.shared_max:build", oracles=True, when=_max_to_gap)
register(SharedMKL, "sa-paper", "dmkl.solvers.shared_max:build", oracles=True, when=_max)
register(SharedMKL, "mirror-paper", "dmkl.solvers.shared_max:build", oracles=True, when=_max)
register(Obscure, "exact", "dmkl.solvers.obscure:build", when=_has_columns_solver)
register(Obscure, "obscure", "dmkl.solvers.obscure:build", when=_has_columns_solver)
register(Obscure, "stochastic", "dmkl.solvers.obscure:build")
register(Obscure, "online", "dmkl.solvers.obscure:build")
register(Obscure, "pegasos", "dmkl.solvers.obscure:build", when=_bounded)
register(MIKL, "interior", "dmkl.solvers.mikl:build")
register(MIKL, "newton", "dmkl.solvers.mikl:build")
register(MIKL, "fista", "dmkl.solvers.mikl:build")
register(MIKL, "plain", "dmkl.solvers.mikl:build")
