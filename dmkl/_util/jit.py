"""numba's compiler with the options of dmkl: functions are compiled when first called, cached on disk, run without the
GIL, and keep their types for mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def jit(**options: Any) -> Callable[[F], F]:
    """A decorator that compiles a function. `options` are those of `numba.njit` beside nogil and cache."""

    def decorate(function: F) -> F:
        return cast(F, numba.njit(nogil=True, cache=True, **options)(function))

    return decorate


def _pointer(context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


# for compiled functions: array_at(pointer_to(address), shape, dtype) is the memory at an address as an array, which is
# how any number of arrays are passed at once
pointer_to: Any = intrinsic(_pointer)
array_at: Any = numba.carray  # type: ignore[attr-defined] # as it is documented
