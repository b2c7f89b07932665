"""Scratch memory of the threads that run tasks."""

from __future__ import annotations

import threading
import weakref

from dmkl._util.machine import Scratch

_thread = threading.local()
_all: weakref.WeakSet[Scratch] = weakref.WeakSet()


def thread_scratch() -> Scratch:
    """What this thread uses from task to task."""
    if not hasattr(_thread, "scratch"):
        _thread.scratch = Scratch()
        _all.add(_thread.scratch)
    scratch: Scratch = _thread.scratch
    return scratch


def release() -> None:
    """Give the memory of all threads back; nothing may be running."""
    for scratch in _all:
        scratch.release()
