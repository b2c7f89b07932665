"""Amounts of memory and time, as text."""

from __future__ import annotations

import math

from dmkl.errors import ConfigError


def parse_bytes(text: str) -> int:
    """'4 GB', '512MiB' or '1e9' as a number of bytes."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    units |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    compact = text.strip().replace(" ", "")
    number = compact.rstrip("KMGTIBkmgtib")
    try:
        size = int(float(number) * units[compact[len(number) :].upper()])
    except (ValueError, KeyError, OverflowError):
        raise ConfigError(f"'{text}' is not an amount of memory", "write it like '4 GB' or '512 MiB'") from None
    if size <= 0:
        raise ConfigError(f"'{text}' is not a positive amount of memory")
    return size


def parse_seconds(text: str) -> float:
    """'90', '90 s', '30 m' or '2 h' as seconds."""
    units = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
    compact = text.strip().replace(" ", "")
    number = compact.rstrip("smh")
    try:
        seconds = float(number) * units[compact[len(number) :]]
    except (ValueError, KeyError):
        raise ConfigError(f"'{text}' is not a time", "write it like '90 s', '30 m' or '2 h'") from None
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ConfigError(f"'{text}' is not a positive time")
    return seconds
