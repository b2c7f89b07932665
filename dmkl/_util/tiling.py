"""How an n x n matrix is cut into square tiles, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """`blocks` x `blocks` tiles with sides of `tile` (the last block may be shorter).

    Tiles with j >= i are kept, and all of them where a kernel is not symmetric (`full`).
    """

    n: int
    tile: int
    full: bool = False

    @classmethod
    def cut(cls, n: int, largest: int, *, full: bool = False) -> Grid:
        """The grid with the fewest blocks of at most `largest` samples, all of nearly the same size."""
        blocks = -(-n // largest)
        return cls(n, -(-n // blocks), full)

    @property
    def blocks(self) -> int:
        return -(-self.n // self.tile)

    def span(self, block: int) -> slice:
        """The samples of a block."""
        return slice(block * self.tile, min((block + 1) * self.tile, self.n))

    def kept(self, i: int) -> range:
        """The tiles that are kept of block row i."""
        return range(0 if self.full else i, self.blocks)

    @property
    def tiles(self) -> int:
        """How many tiles are kept."""
        return self.blocks**2 if self.full else self.blocks * (self.blocks + 1) // 2

    def pairs(self) -> list[tuple[int, int]]:
        """All kept tiles, row by row."""
        return [(i, j) for i in range(self.blocks) for j in self.kept(i)]


@dataclass(frozen=True)
class UnevenGrid(Grid):
    """A grid with blocks of different sizes: `edges` are the first samples of its blocks, and n.

    Even blocks become uneven when only some of the samples are kept."""

    edges: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        return len(self.edges) - 1

    def span(self, block: int) -> slice:
        return slice(self.edges[block], self.edges[block + 1])
