"""What a command was pointed at: a configuration file, a bundled example or a kernel store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmkl._util.units import parse_bytes
from dmkl.config import Config, from_environment, parse_config, read_config
from dmkl.errors import ConfigError, ResourceError

if TYPE_CHECKING:
    from dmkl._util.machine import Budget
    from dmkl.store import KernelStore


@dataclass(frozen=True)
class Source:
    """A configuration, the store it came from if it did, and a short name for outputs."""

    config: Config
    store: KernelStore | None
    name: str


def read_source(target: str | None, example: str | None, overrides: dict[str, str]) -> Source:
    """Exactly one of a path and an example."""
    from dmkl.run import EXAMPLES, stored_config
    from dmkl.store import KernelStore

    if (target is None) == (example is None):
        raise ConfigError("name one of a configuration file, a kernel store or --example", "see dmkl train --help")
    laid: dict[str, Any] = {"overrides": overrides, "environment": from_environment(os.environ)}
    if example is not None:
        return Source(parse_config(EXAMPLES[example], source=f"example {example}", **laid), None, example)
    path = Path(str(target))
    if path.is_dir():
        store = KernelStore(path)
        return Source(stored_config(store, **laid), store, path.stem)
    return Source(read_config(path, **laid), None, path.stem)


def budget(config: Config, otherwise: int = 0) -> Budget:
    """The limit the configuration names, else `otherwise` bytes, else a share of what is free."""
    from dmkl._util.machine import Budget, resident

    if not config.run.memory:
        return Budget(otherwise) if otherwise else Budget.default()
    asked = Budget(parse_bytes(config.run.memory))
    if not asked.left:
        raise ResourceError(
            f"the limit of '{config.run.memory}' is used up before the work begins: dmkl itself takes "
            f"{resident() / 1e6:,.0f} MB",
            "raise --memory",
        )
    return asked
