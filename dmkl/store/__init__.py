"""Kernel matrices on disk: the store, building it, and the views inside it."""

from dmkl.store.build import StoredPair, build_store
from dmkl.store.store import KernelStore, check_space, opened, projected_bytes

__all__ = ["KernelStore", "StoredPair", "build_store", "check_space", "opened", "projected_bytes"]
