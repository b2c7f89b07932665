"""Kernel stores: kernel matrices on disk or on object stores, how they are built, read, validated and repaired."""

from dmkl.store.build import RepairLog, StoredPair, build_store, sound_tile
from dmkl.store.place import Folder, Place, UnreachableStore, place_of
from dmkl.store.store import KernelStore, UnusableTile, check_space, opened, projected_bytes

__all__ = [
    "Folder",
    "KernelStore",
    "Place",
    "RepairLog",
    "StoredPair",
    "UnreachableStore",
    "UnusableTile",
    "build_store",
    "check_space",
    "opened",
    "place_of",
    "projected_bytes",
    "sound_tile",
]
