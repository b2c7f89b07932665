"""Many sets of samples in little memory: those of the classes, and those that compact problems are solved on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np

from dmkl._util.types import Array, Mask, Samples

Part: TypeAlias = Array  # one set: its members, ascending (uint32), or a bit for each sample (uint8)
NUMBER: Final = np.dtype(np.uint32)


class SampleSets:
    """m sets of n samples, of which each is kept in the shorter form: its members, or a bit for each sample.

    So they never take more than n m / 8 bytes. Sets that are alike may share their memory; `put` replaces a set and
    changes no array, so a copy takes a few bytes a set.

    Parameters
    ----------
    n : int
    parts : sequence of arrays
        The sets, each in its shorter form.
    sizes : array (m,)
        The number of members of each.

    Attributes
    ----------
    n : int
    sizes : array (m,)
    """

    def __init__(self, n: int, parts: Iterable[Part], sizes: Samples) -> None:
        self.n, self.sizes, self._parts = n, sizes, list(parts)

    @classmethod
    def of(cls, n: int, sets: Iterable[Samples]) -> SampleSets:
        """The sets with these members, ascending."""
        parts, sizes = [], []
        for members in sets:
            parts.append(_packed(members, n))
            sizes.append(len(members))
        return cls(n, parts, np.array(sizes, dtype=np.int64))

    @classmethod
    def of_masks(cls, masks: Array) -> SampleSets:
        """The sets whose members are the entries of each column (n, m) that are not zero."""
        n, m = masks.shape
        some = max(1, 64 // masks.itemsize)  # columns of a cache line: one after the other they take far longer
        starts = range(0, m, some)
        columns = (column for at in starts for column in np.ascontiguousarray(masks[:, at : at + some].T))
        return cls.of(n, map(np.flatnonzero, columns))

    @classmethod
    def of_codes(cls, codes: Samples, m: int) -> SampleSets:
        """The samples of each of m classes, from the class (n,) of every sample."""
        order = np.argsort(codes, kind="stable")
        return cls.of(len(codes), np.split(order, np.searchsorted(codes[order], np.arange(1, m))))

    @classmethod
    def alike(cls, mask: Mask, m: int) -> SampleSets:
        """The same set m times; it is in memory once."""
        members = np.flatnonzero(mask)
        return cls(len(mask), [_packed(members, len(mask))] * m, np.full(m, len(members)))

    @classmethod
    def whole(cls, n: int, m: int) -> SampleSets:
        """All samples, m times."""
        return cls.alike(np.ones(n, dtype=bool), m)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return self.n, len(self._parts)

    @property
    def nbytes(self) -> int:
        """The bytes of the members and bits, those of shared sets once."""
        return sum({id(part): part.nbytes for part in self._parts}.values())

    def members(self, k: int) -> Samples:
        """The members of set k, ascending."""
        part = self._parts[k]
        return part.astype(np.int64) if part.dtype == NUMBER else np.flatnonzero(self.mask(k))

    def mask(self, k: int) -> Mask:
        """(n,): set k as a mask."""
        part = self._parts[k]
        if part.dtype != NUMBER:
            return np.unpackbits(part, count=self.n).view(bool)
        mask = np.zeros(self.n, dtype=bool)
        mask[part] = True
        return mask

    def masks(self) -> Mask:
        """(n, m): all sets as masks, which takes n m bytes."""
        masks = np.zeros(self.shape, dtype=bool)
        for k in range(len(self._parts)):
            masks[self.members(k), k] = True
        return masks

    def put(self, k: int, mask: Mask) -> None:
        """Replace set k."""
        members = np.flatnonzero(mask)
        self._parts[k], self.sizes[k] = _packed(members, self.n), len(members)

    def copy(self) -> SampleSets:
        """The same sets, of which some can be replaced."""
        return SampleSets(self.n, self._parts, self.sizes.copy())

    def among(self, classes: Iterable[int]) -> SampleSets:
        """Some of the sets, in this order."""
        some = list(classes)
        return SampleSets(self.n, (self._parts[k] for k in some), self.sizes[some])

    def differing(self, other: SampleSets) -> list[int]:
        """The numbers of the sets that differ from those of `other`, which has as many."""
        pairs = enumerate(zip(self._parts, other._parts, strict=True))
        return [k for k, (mine, its) in pairs if mine is not its and not np.array_equal(mine, its)]

    def arrays(self) -> dict[str, Array]:
        """Arrays to save, or to hash: equal sets have equal ones."""
        listed = [part for part in self._parts if part.dtype == NUMBER]
        bits = [part for part in self._parts if part.dtype != NUMBER]
        return {
            "n": np.array(self.n, dtype=np.int64),
            "sizes": self.sizes,
            "members": np.concatenate([np.empty(0, NUMBER), *listed]),
            "bits": np.concatenate([np.empty(0, np.uint8), *bits]),
        }

    @classmethod
    def read(cls, arrays: Mapping[str, Array]) -> SampleSets:
        """The sets with these arrays; ValueError unless they are those that `arrays` would give."""
        n, sizes, members, bits = (arrays[name] for name in ("n", "sizes", "members", "bits"))
        if n.shape or n.dtype != np.int64 or n < 1 or sizes.ndim != 1 or sizes.dtype != np.int64:
            raise ValueError("sets of samples without their sizes")
        if not ((sizes >= 0) & (sizes <= n)).all() or members.dtype != NUMBER or bits.dtype != np.uint8:
            raise ValueError("sets of samples with wrong sizes or types")
        count, width = int(n), _width(int(n))
        short = [_is_short(size, count) for size in sizes.tolist()]
        if members.shape != (sizes[short].sum(),) or bits.shape != (width * short.count(False),):
            raise ValueError("sets of samples with other members than their sizes say")
        lists = iter(np.split(members, np.cumsum(sizes[short])))
        rows = iter(bits.reshape(-1, width))
        found = cls(count, (next(lists if one else rows) for one in short), sizes)
        for k, part in enumerate(found._parts):
            if not (_are_members(part, count) if short[k] else _are_bits(part, count, int(sizes[k]))):
                raise ValueError(f"set {k} of samples is none")
        return found


def _width(n: int) -> int:
    """The bytes of n bits."""
    return (n + 7) // 8


def _is_short(size: int, n: int) -> bool:
    """Whether a set of this size takes less memory as members than as bits."""
    return NUMBER.itemsize * size < _width(n)


def _packed(members: Samples, n: int) -> Part:
    """The shorter form of a set."""
    if _is_short(len(members), n):
        return members.astype(NUMBER)
    mask = np.zeros(n, dtype=bool)
    mask[members] = True
    return np.packbits(mask)


def _are_members(part: Part, n: int) -> bool:
    return bool((part < n).all() and (part[1:] > part[:-1]).all())


def _are_bits(part: Part, n: int, size: int) -> bool:
    left = 8 * len(part) - n  # bits of the last byte that belong to no sample
    return int(np.bitwise_count(part).sum()) == size and not part[-1] & ((1 << left) - 1)
