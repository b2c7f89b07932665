"""Loops over the values of a tile, compiled and without the GIL: each reads the tile once, as fast as memory gives it.

A tile comes as `rows_of` shows it. Four rows, or four tiles, are worked on side by side, so that what they are
multiplied by and added to is fetched a quarter as often: with one at a time a core cannot keep up with its memory. The
four rows lie a quarter of a strip apart, so that memory is read in four long runs. Every order of sums is fixed when
compiling: the same input gives the same bits, on any number of threads and from any source.
"""

from __future__ import annotations

import numpy as np

from dmkl._util.jit import array_at, jit, pointer_to
from dmkl._util.types import Float64, FloatArray, Samples

# fixed when compiling
STRIP = 64  # rows of a tile: 256 kB
TOGETHER = 4  # tiles summed in one go
SQUARE = 64  # columns compared together
ALIGNED = 32  # a row is read from a multiple of this on


def rows_of(tile: FloatArray) -> FloatArray:
    """The same memory as contiguous, read-only rows, as wide as they lie apart: one compiled function for the tiles of
    an array, which are parts of its rows, and for those that stand alone. The caller knows how wide the tile is."""
    if tile.flags.c_contiguous:
        rows = tile.view()
        rows.flags.writeable = False
        return rows
    apart, size = tile.strides[0], tile.itemsize
    if tile.strides[1] != size or apart % size or apart < tile.shape[1] * size:
        tile = np.ascontiguousarray(tile)
        apart = tile.strides[0]
    shape = (len(tile), max(apart // size, tile.shape[1]))
    return np.lib.stride_tricks.as_strided(tile, shape, (shape[1] * size, size), writeable=False)


# reassociation lets the sums run in vector registers; the order is fixed when compiling, not at run time
@jit(fastmath={"reassoc", "contract"})
def _both_ways(
    rows: FloatArray, first: int, last: int, here: Float64, there: Float64, factor: float, own: Float64, left: Float64
) -> None:
    """Of rows first to last of K: own = K there and left += factor K' here."""
    apart = (last - first) // 4
    for i in range(first, first + apart):
        e, f, g = i + apart, i + 2 * apart, i + 3 * apart
        p, q, r, s = factor * here[i], factor * here[e], factor * here[f], factor * here[g]
        a = b = c = d = 0.0
        for j in range(there.shape[0]):
            one, two = np.float64(rows[i, j]), np.float64(rows[e, j])
            three, four = np.float64(rows[f, j]), np.float64(rows[g, j])
            a += one * there[j]
            b += two * there[j]
            c += three * there[j]
            d += four * there[j]
            left[j] += (p * one + q * two) + (r * three + s * four)
        own[i], own[e], own[f], own[g] = a, b, c, d
    for i in range(first + 4 * apart, last):
        p, a = factor * here[i], 0.0
        for j in range(there.shape[0]):
            one = np.float64(rows[i, j])
            a += one * there[j]
            left[j] += p * one
        own[i] = a


@jit()
def multiply_both_ways(
    rows: FloatArray, span: tuple[int, int], users: Samples, factors: Float64, coefs: Float64, scores: Float64
) -> Float64:
    """For the tile K, whose rows are the first samples and whose columns those of this span, and class k = users[u]:
    scores[k] += factors[u] K coefs[k, span], and off the diagonal also factors[u] K' coefs[k] to scores[k, span].
    Returns coefs[k]' K coefs[k, span] for each. A strip of rows stays in the cache for all of the classes."""
    height, (start, stop) = rows.shape[0], span
    forms, products = np.zeros(users.shape[0]), np.empty((users.shape[0], height))
    for first in range(0, height, STRIP):
        last = min(first + STRIP, height)
        for u in range(users.shape[0]):
            coef, score = coefs[users[u]], scores[users[u]]
            turned = factors[u] if start else 0.0  # on the diagonal a tile is its own mirror
            _both_ways(rows, first, last, coef, coef[start:stop], turned, products[u], score[start:stop])
    for u in range(users.shape[0]):
        coef, score = coefs[users[u]], scores[users[u]]
        for i in range(height):
            forms[u] += coef[i] * products[u, i]
            score[i] += factors[u] * products[u, i]
    return forms


# reassociation lets the sums run in vector registers; the order is fixed when compiling, not at run time
@jit(fastmath={"reassoc", "contract"})
def quadratic_form(kernel: FloatArray, support: Samples, coef: Float64) -> float:
    """coef' K coef of a symmetric kernel: the rows of the support, from the diagonal on. What is right of the diagonal
    counts twice; rows begin at a multiple of `ALIGNED`, where vector registers do."""
    form = 0.0
    for i in support:
        first = i - i % ALIGNED
        row, right = kernel[i, first:], coef[first:]
        total = square = 0.0
        for j in range(row.shape[0]):
            total += np.float64(row[j]) * right[j]
        for j in range(min(ALIGNED, row.shape[0])):
            square += np.float64(row[j]) * right[j]
        form += coef[i] * (2.0 * total - square)
    return form


@jit()
def quadratic_forms_of(K: FloatArray, kernels: Samples, support: Samples, coef: Float64, forms: Float64) -> None:
    """forms[k] = coef' K[kernels[k]] coef."""
    for k in range(kernels.shape[0]):
        forms[k] = quadratic_form(K[kernels[k]], support, coef)


@jit()
def add_one(total: Float64, rows: FloatArray, weight: float) -> None:
    """total += weight K."""
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += weight * np.float64(rows[i, j])


@jit()
def add_four(total: Float64, A: FloatArray, B: FloatArray, C: FloatArray, D: FloatArray, weights: Float64) -> None:
    """total += weights[0] A + ..., rounded as one after the other would be."""
    a, b, c, d = weights[0], weights[1], weights[2], weights[3]
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            first = (total[i, j] + a * np.float64(A[i, j])) + b * np.float64(B[i, j])
            total[i, j] = (first + c * np.float64(C[i, j])) + d * np.float64(D[i, j])


@jit()
def cut(rows: FloatArray, mine: Samples, columns: Samples, out: FloatArray, top: int, left: int) -> None:
    """out[top:, left:] = K[mine][:, columns] of a tile K as `rows_of` shows it; eight rows at a time, so that
    memory is asked for the next while one is waited for."""
    height, width = mine.shape[0], columns.shape[0]
    for r in range(0, height - 7, 8):
        a, b, c, d = rows[mine[r]], rows[mine[r + 1]], rows[mine[r + 2]], rows[mine[r + 3]]
        e, f, g, h = rows[mine[r + 4]], rows[mine[r + 5]], rows[mine[r + 6]], rows[mine[r + 7]]
        here = out[top + r : top + r + 8, left : left + width]
        for k in range(width):
            column = columns[k]
            here[0, k], here[1, k], here[2, k], here[3, k] = a[column], b[column], c[column], d[column]
            here[4, k], here[5, k], here[6, k], here[7, k] = e[column], f[column], g[column], h[column]
    for r in range(height - height % 8, height):
        row = rows[mine[r]]
        for k in range(width):
            out[top + r, left + k] = row[columns[k]]


@jit()
def _cut_both_ways(rows: FloatArray, mine: Samples, columns: Samples, out: FloatArray, top: int, left: int) -> None:
    """The same, and out[left:, top:] = its mirror image, eight entries of a row at a time."""
    height, width = mine.shape[0], columns.shape[0]
    for r in range(0, height - 7, 8):
        a, b, c, d = rows[mine[r]], rows[mine[r + 1]], rows[mine[r + 2]], rows[mine[r + 3]]
        e, f, g, h = rows[mine[r + 4]], rows[mine[r + 5]], rows[mine[r + 6]], rows[mine[r + 7]]
        here = out[top + r : top + r + 8, left : left + width]
        for k in range(width):
            column = columns[k]
            s, t, u, v = a[column], b[column], c[column], d[column]
            w, x, y, z = e[column], f[column], g[column], h[column]
            here[0, k], here[1, k], here[2, k], here[3, k] = s, t, u, v
            here[4, k], here[5, k], here[6, k], here[7, k] = w, x, y, z
            turned = out[left + k, top + r : top + r + 8]
            turned[0], turned[1], turned[2], turned[3] = s, t, u, v
            turned[4], turned[5], turned[6], turned[7] = w, x, y, z
    for r in range(height - height % 8, height):
        row = rows[mine[r]]
        for k in range(width):
            out[top + r, left + k] = out[left + k, top + r] = row[columns[k]]


@jit()
def cut_sets(
    rows: FloatArray,
    width: int,
    sets: Samples,
    layers: Samples,
    shapes: Samples,
    corners: Samples,
    mine: Samples,
    first_mine: Samples,
    columns: Samples,
    first_column: Samples,
    turned: bool,
    kind: FloatArray,
) -> None:
    """What some sets take from a tile of this width: one call for all of them, which holds the GIL once.

    Parameters
    ----------
    rows : the tile, as `rows_of` shows it
    width : of the tile
    sets : numbers of the sets
    layers : for each of these the address of the matrix that is filled
    shapes, corners : (all sets, 2) of the matrices, and where in them the tile's part begins
    mine, first_mine : the rows that the sets take, one set after the other, and where each set begins
    columns, first_column : the same for columns
    turned : whether mirror images are filled in, too
    kind : any array of the type of the matrices
    """
    for p in range(sets.shape[0]):
        u = sets[p]
        own, others = mine[first_mine[u] : first_mine[u + 1]], columns[first_column[u] : first_column[u + 1]]
        out = array_at(pointer_to(layers[p]), (shapes[u, 0], shapes[u, 1]), kind.dtype)
        top, left = corners[u, 0], corners[u, 1]
        if turned:
            _cut_both_ways(rows, own, others, out, top, left)
        elif own.shape[0] == rows.shape[0] and others.shape[0] == width:
            for r in range(own.shape[0]):
                for k in range(width):
                    out[top + r, left + k] = rows[r, k]
        else:
            cut(rows, own, others, out, top, left)


def mirror(layer: FloatArray, top: int, bottom: int, left: int, right: int) -> None:
    """A rectangle of a symmetric matrix, rows top to bottom, as columns too; numpy writes row after row, which takes
    half as long as compiled loops in squares."""
    layer[left:right, top:bottom] = layer[top:bottom, left:right].T


@jit(fastmath={"reassoc", "contract"})
def one_sided(kernel: FloatArray, probe: Float64, difference: Float64) -> float:
    """The largest entry of (K - K') probe in size, NaN or infinite if one of K is; K is read once, row after row."""
    n = len(kernel)
    difference[:] = 0.0
    for i in range(n):
        row, own, total = kernel[i], probe[i], 0.0
        for j in range(n):
            value = np.float64(row[j])
            total += value * probe[j]
            difference[j] -= own * value
        difference[i] += total
    worst = 0.0
    for i in range(n):
        if not abs(difference[i]) <= worst:
            worst = abs(difference[i])
            if not worst < np.inf:
                break
    return worst


@jit()
def asymmetry(kernel: FloatArray, start: int, stop: int) -> tuple[float, float, int, int]:
    """Of these rows up to the diagonal and of the entries' mirrors: the largest entry in size, the largest difference
    of two mirrors, and where that is."""
    largest, worst, at, other = 0.0, -1.0, 0, 0
    for left in range(0, stop, SQUARE):  # squares, so that both of a pair are in cache
        for top in range(max(start, left), stop, SQUARE):
            for i in range(top, min(top + SQUARE, stop)):
                for j in range(left, min(left + SQUARE, i + 1)):
                    value, mirrored = np.float64(kernel[i, j]), np.float64(kernel[j, i])
                    largest = max(largest, abs(value), abs(mirrored))
                    difference = abs(value - mirrored)
                    if difference > worst:
                        worst, at, other = difference, i, j
    return largest, worst, at, other
