"""Kernel stores: kernel matrices on disk, how they are built, read, validated and repaired."""

from dmkl.store.build import RepairLog, StoredPair, build_store, sound_tile
from dmkl.store.store import KernelStore, UnusableTile, check_space, opened, projected_bytes

__all__ = [
    "KernelStore",
    "RepairLog",
    "StoredPair",
    "UnusableTile",
    "build_store",
    "check_space",
    "opened",
    "projected_bytes",
    "sound_tile",
]
