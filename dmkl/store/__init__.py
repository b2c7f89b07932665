"""Kernel matrices on disk: the store, building it, and the views inside it."""

from dmkl.store.build import build_store
from dmkl.store.store import KernelStore, check_space, opened, projected_bytes

__all__ = ["KernelStore", "build_store", "check_space", "opened", "projected_bytes"]
