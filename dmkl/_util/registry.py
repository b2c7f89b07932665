"""Tables of named variants (kernels, losses, formulations, readers, schedulers): one line a variant."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

from dmkl.errors import ConfigError, did_you_mean

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to variants.

    An entry is the variant itself or its place, "package.module:name". A place is imported when its name is looked up,
    so that a table costs nothing until it is used. Looking up an unknown name raises a ConfigError that lists the known
    names.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T | str] = {}

    def register(self, name: str, entry: T | str) -> None:
        """Add a variant under a new name."""
        if name in self._entries:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        try:
            entry = self._entries[name]
        except KeyError:
            hint = did_you_mean(str(name), list(self._entries))
            raise ConfigError(f"unknown {self.kind} '{name}'", hint) from None
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = cast(T, getattr(importlib.import_module(module), attribute))
            self._entries[name] = entry
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
