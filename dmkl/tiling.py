"""How an n x n symmetric matrix is cut into square tiles, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """`blocks` x `blocks` tiles with sides of `tile` (the last block may be shorter); tiles with j >= i are kept."""

    n: int
    tile: int

    @classmethod
    def cut(cls, n: int, largest: int) -> Grid:
        """Blocks of equal size, as few as a side of at most `largest` allows: no thin last block, no padding."""
        blocks = -(-n // largest)
        return cls(n, -(-n // blocks))

    @property
    def blocks(self) -> int:
        return -(-self.n // self.tile)

    def span(self, block: int) -> slice:
        """The samples of a block."""
        return slice(block * self.tile, min((block + 1) * self.tile, self.n))

    @property
    def tiles(self) -> int:
        """How many tiles are kept."""
        return self.blocks * (self.blocks + 1) // 2

    def pairs(self) -> list[tuple[int, int]]:
        """All kept tiles, row by row."""
        return [(i, j) for i in range(self.blocks) for j in range(i, self.blocks)]
