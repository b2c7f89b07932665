"""One large value that the tasks of a process share, made by the first of them that asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_value: tuple[str, Any] = "", None


def kept(name: str, make: Callable[[], T]) -> T:
    """The value of this name, unique to it; one of another name is let go."""
    global _value
    with _lock:
        if _value[0] != name:
            _value = "", None
            _value = name, make()
        found: T = _value[1]
        return found


def forget_kept() -> None:
    """Let go of the value."""
    global _value
    with _lock:
        _value = "", None
