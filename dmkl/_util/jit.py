"""numba as dmkl uses it: compiled on first use, kept on disk, without the GIL, and with its types kept for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(**options: Any) -> Callable[[F], F]:
    """A decorator; `options` are numba.njit's beyond nogil and cache."""

    def decorate(function: F) -> F:
        return cast(F, numba.njit(nogil=True, cache=True, **options)(function))

    return decorate
