"""Named variants (kernels, oracles, formulations, readers): one table each, filled by one line per variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from dmkl.errors import ConfigError, did_you_mean

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from name to variant whose look-up says what it knows when it does not know a name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T) -> T:
        if name in self._entries:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._entries[name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            hint = did_you_mean(str(name), list(self._entries))
            raise ConfigError(f"unknown {self.kind} '{name}'", hint) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
