"""numba's compiler with the options of dmkl: functions are compiled when first called, cached on disk, run without the
GIL, and keep their types for mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(**options: Any) -> Callable[[F], F]:
    """A decorator that compiles a function. `options` are those of `numba.njit` beside nogil and cache."""

    def decorate(function: F) -> F:
        return cast(F, numba.njit(nogil=True, cache=True, **options)(function))

    return decorate
