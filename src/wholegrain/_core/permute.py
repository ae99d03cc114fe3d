"""Pseudo-random permutations of `0..length-1` that need no memory: the heart of every shuffle.

A seed selects a block cipher over the smallest block of an even number of bits (at least 16) that
holds the largest index. Enciphering an index gives its position in the permutation. A result beyond
the largest index is enciphered again until it falls inside ("cycle walking"). The numbers are
those of Grain's `index_shuffle`, with one correction. If the largest index does not fit into the
block that Grain chooses, as in a dataset of exactly 65,537 elements, Grain reads one element twice
and one never. Here such an index keeps its position, and every element is read once.

Below 2**16 elements a walk has many steps, so the extension walks many indices at once. Without the
extension, and for the shortest lengths, the whole permutation is computed once and cached.
"""

import array
import functools
import math
import threading
from typing import SupportsIndex

import numpy as np

from wholegrain._core import native
from wholegrain._core.types import Indices, NDArray
from wholegrain._core.whole_number import whole_number

SMALL_LENGTH = 1 << 16
"""Up to this length a block has 16 bits."""

_KEPT_LENGTH = 2048
"""Up to this length a whole permutation is computed and cached. Without the extension, that is done
up to `SMALL_LENGTH`; the extension is so fast that caching longer ones gains nothing."""

_DATASET_ROUNDS = 4
_KEPT_INDICES = 1 << 21  # 16 MB: 32 of the longest permutations, or thousands of short ones.
_BLOCK = 8192  # The words and temporaries of a block fit into the L2 cache.
_FEW = 8  # Fewer indices are walked one by one, because an array operation costs as much.
_ONE, _TWO, _EIGHT = np.uint32(1), np.uint32(2), np.uint32(8)
_INT64 = range(-(1 << 63), 1 << 63)
_UINT32 = range(1 << 32)


def index_shuffle(
    index: SupportsIndex, max_index: SupportsIndex, seed: SupportsIndex, rounds: SupportsIndex
) -> int:
    """Return the position of `index` in a permutation of `0..max_index` chosen by `seed`.

    For the same `max_index`, `seed` and `rounds`, the results for all indices differ, so that
    reading a dataset through it is a shuffle without a buffer.

    Args:
        index: The index to move, at least 0 and at most `max_index`.
        max_index: The largest index, inclusive.
        seed: An unsigned 32-bit integer.
        rounds: How often the bits are mixed: an even number from 4 to 1024.

    Example:
        >>> [index_shuffle(i, max_index=4, seed=0, rounds=4) for i in range(5)]
        [0, 4, 1, 2, 3]
    """
    index = _integer("index", index, _INT64)
    max_index = _integer("max_index", max_index, _INT64)
    seed = _integer("seed", seed, _UINT32)
    rounds = _integer("rounds", rounds, _UINT32)
    if rounds % 2 or not 4 <= rounds <= 1024:
        raise ValueError(f"`rounds` must be an even number from 4 to 1024, but got {rounds}.")
    if not 0 <= index <= max_index:
        raise ValueError(
            f"`index` must be at least 0 and at most `max_index`, but got index={index}"
            f" and max_index={max_index}."
        )
    if max_index == 0:
        return 0
    word_bits = bits_per_word(max_index)
    if native.lib is not None:
        return native.lib.index_shuffle(index, max_index, seed, rounds, word_bits)
    if rounds == _DATASET_ROUNDS and max_index < SMALL_LENGTH:
        return _permutations(max_index + 1, seed)[0][index]
    return _shuffle_scalar(index, max_index, round_keys(seed, rounds), word_bits)


def shuffle_index(index: int, length: int, seed: int) -> int:
    """Return the position of one index of `0..length-1`. The caller has to check the arguments."""
    if length <= _KEPT_LENGTH or (length <= SMALL_LENGTH and native.lib is None):
        kept = _kept.get((length, seed))
        if kept is not None:
            return kept[0][index]
        return _permutations(length, seed)[0][index]
    if native.lib is None:
        return index_shuffle(index, length - 1, seed, _DATASET_ROUNDS)
    word_bits = bits_per_word(length - 1)
    return native.lib.index_shuffle(index, length - 1, seed, _DATASET_ROUNDS, word_bits)


def unshuffle_index(value: int, length: int, seed: int) -> int:
    """Return the index of `0..length-1` that `shuffle_index` moves to `value`."""
    if length <= SMALL_LENGTH:  # A walk has many steps there.
        return int(np.flatnonzero(permutation(length, seed) == value)[0])
    keys, w = round_keys(seed, _DATASET_ROUNDS), bits_per_word(length - 1)
    mask = (1 << w) - 1
    if value >> (2 * w):
        return value  # It does not fit into the block, so it keeps its position.
    while True:
        left, right = value >> w, value & mask
        for j in range(len(keys) - 2, -1, -2):
            right ^= _mixed(left, keys[j + 1], w) & mask
            left ^= _mixed(right, keys[j], w) & mask
        value = left << w | right
        if value < length:
            return value


def _mixed(x: int, key: int, w: int) -> int:
    """Return what a round of the cipher adds to one word, given the other; higher bits vary."""
    return (((x << 1 | x >> (w - 1)) & (x << 8 | x >> (w - 8))) ^ (x << 2 | x >> (w - 2))) ^ key


def shuffle_indices(indices: Indices, length: int, seed: int) -> Indices:
    """Return the positions of many indices of `0..length-1`, as a new array."""
    if length <= SMALL_LENGTH:
        if length > _KEPT_LENGTH and native.lib is not None:
            return _walk(indices, seed, length)
        return permutation(length, seed)[indices]
    word_bits = bits_per_word(length - 1)
    if native.lib is not None:
        indices = np.ascontiguousarray(indices)
        shuffled = np.empty_like(indices)
        native.lib.shuffle_indices(indices, shuffled, length, seed, word_bits)
        return shuffled
    return _shuffle_array(indices, length - 1, round_keys(seed, _DATASET_ROUNDS), word_bits)


def shuffle_each(indices: Indices, length: int, seeds: Indices) -> Indices:
    """Return the positions of many indices of `0..length-1`, each with a seed of its own."""
    if length <= SMALL_LENGTH and native.lib is not None:
        return _walk(indices, np.ascontiguousarray(seeds), length)
    shuffled = np.empty_like(indices)
    order = np.argsort(seeds, kind="stable")
    firsts = np.flatnonzero(np.diff(seeds[order])) + 1
    for here in np.split(order, firsts) if len(order) else ():
        shuffled[here] = shuffle_indices(indices[here], length, int(seeds[here[0]]))
    return shuffled


def _walk(indices: Indices, seeds: int | Indices, length: int) -> Indices:
    assert native.lib is not None
    indices = np.ascontiguousarray(indices)
    shuffled = np.empty_like(indices)
    native.lib.walk(indices, seeds, shuffled, length)
    return shuffled


def permutation(length: int, seed: int) -> Indices:
    """Return the positions of all indices of `0..length-1`, for `length <= SMALL_LENGTH`.

    The array is cached and shared, so it is read-only.
    """
    return _permutations(length, seed)[1]


def forget_permutations() -> None:
    """Clear the cache of permutations."""
    global _kept_count
    with _kept_lock:
        _kept.clear()
        _kept_count = 0


def num_kept_indices() -> int:
    """Return the total length of all cached permutations."""
    return _kept_count


def _integer(name: str, value: SupportsIndex, allowed: range) -> int:
    integer = whole_number(name, value)
    if integer not in allowed:
        raise TypeError(
            f"`{name}` must be from {allowed.start} to {allowed.stop - 1}, but got {integer}."
        )
    return integer


@functools.lru_cache(maxsize=256)
def bits_per_word(max_index: int) -> int:
    """Return half the bits of a block. Grain computes it in doubles, which matters above 2**48."""
    bits = math.ceil(math.log2(max_index))
    return max(8, (bits + 1) // 2)


@functools.lru_cache(maxsize=256)
def round_keys(seed: int, rounds: int) -> tuple[int, ...]:
    """Return the key of each round: the output of C++'s `std::seed_seq` for one seed word."""
    n = rounds
    t = 11 if n >= 623 else 7 if n >= 68 else 5 if n >= 39 else 3 if n >= 7 else (n - 1) // 2
    p = (n - t) // 2
    q = p + t
    full = 0xFFFFFFFF
    o = [0x8B8B8B8B] * n
    for k in range(n):
        x = o[k] ^ o[(k + p) % n] ^ o[k - 1]
        r1 = 1664525 * (x ^ (x >> 27)) & full
        r2 = r1 + (1 if k == 0 else 1 + seed if k == 1 else k) & full
        o[(k + p) % n] = o[(k + p) % n] + r1 & full
        o[(k + q) % n] = o[(k + q) % n] + r2 & full
        o[k] = r2
    for k in range(n):
        x = o[k] + o[(k + p) % n] + o[k - 1] & full
        r3 = 1566083941 * (x ^ (x >> 27)) & full
        r4 = r3 - k & full
        o[(k + p) % n] ^= r3
        o[(k + q) % n] ^= r4
        o[k] = r4
    return tuple(o)


def _shuffle_scalar(index: int, max_index: int, keys: tuple[int, ...], word_bits: int) -> int:
    w = word_bits
    mask = (1 << w) - 1
    if index >> (2 * w):
        return index  # It does not fit into the block, so it keeps its position.
    value = index
    while True:
        left, right = value >> w, value & mask
        for j in range(0, len(keys), 2):
            x = right
            f = ((x << 1 | x >> (w - 1)) & (x << 8 | x >> (w - 8))) ^ (x << 2 | x >> (w - 2))
            left ^= (f ^ keys[j]) & mask
            x = left
            f = ((x << 1 | x >> (w - 1)) & (x << 8 | x >> (w - 8))) ^ (x << 2 | x >> (w - 2))
            right ^= (f ^ keys[j + 1]) & mask
        value = left << w | right
        if value <= max_index:
            return value


def _shuffle_array(
    indices: Indices, max_index: int, keys: tuple[int, ...], word_bits: int
) -> Indices:
    if indices.size and not 0 <= indices.min() <= indices.max() <= max_index:
        raise IndexError(f"Some of the indices are not in 0..{max_index}.")
    values = indices.reshape(-1).astype(np.uint64)  # A block may have 64 bits.
    _encipher(values, keys, word_bits)
    walking = np.flatnonzero(values > max_index)
    while walking.size > _FEW:
        walked = values[walking]
        _encipher(walked, keys, word_bits)
        values[walking] = walked
        walking = walking[walked > max_index]
    for position in walking.tolist():
        values[position] = _shuffle_scalar(int(values[position]), max_index, keys, word_bits)
    shuffled = values.view(np.int64).reshape(indices.shape)
    if max_index >> (2 * word_bits):
        np.copyto(shuffled, indices, where=indices >> (2 * word_bits) > 0)
    return shuffled


def _encipher(values: NDArray[np.uint64], keys: tuple[int, ...], word_bits: int) -> None:
    """Encipher each value once, in place, a block at a time."""
    for start in range(0, values.size, _BLOCK):
        _encipher_block(values[start : start + _BLOCK], keys, word_bits)


def _encipher_block(values: NDArray[np.uint64], keys: tuple[int, ...], word_bits: int) -> None:
    w = np.uint32(word_bits)
    mask = np.uint32((1 << word_bits) - 1)
    # Words have at most 32 bits, so 32-bit arrays suffice for any block size.
    left = (values >> np.uint64(word_bits)).astype(np.uint32)
    left &= mask
    right = values.astype(np.uint32)
    right &= mask
    a, b, c = np.empty_like(left), np.empty_like(left), np.empty_like(left)
    source, target = right, left
    for key in keys:
        # Bits above the mask are garbage that is never shifted down; the round ends by masking.
        np.left_shift(source, _ONE, out=a)
        np.right_shift(source, w - _ONE, out=b)
        np.bitwise_or(a, b, out=a)
        np.left_shift(source, _EIGHT, out=b)
        np.right_shift(source, w - _EIGHT, out=c)
        np.bitwise_or(b, c, out=b)
        np.bitwise_and(a, b, out=a)
        np.left_shift(source, _TWO, out=b)
        np.right_shift(source, w - _TWO, out=c)
        np.bitwise_or(b, c, out=b)
        np.bitwise_xor(a, b, out=a)
        np.bitwise_xor(a, np.uint32(key), out=a)
        np.bitwise_and(a, mask, out=a)
        np.bitwise_xor(target, a, out=target)
        source, target = target, source
    np.left_shift(left, np.uint64(word_bits), out=values)
    np.bitwise_or(values, right, out=values)


# Cached permutations, as an array.array (fast for one index) and as a numpy view of it.
_Kept = tuple["array.array[int]", Indices]
_kept: dict[tuple[int, int], _Kept] = {}
_kept_lock = threading.Lock()
_kept_count = 0


def _permutations(length: int, seed: int) -> _Kept:
    key = (length, seed)
    kept = _kept.get(key)
    if kept is not None:
        return kept
    buffer = array.array("q", bytes(8 * length))
    values: Indices = np.frombuffer(buffer, np.int64)
    if native.lib is not None:
        native.lib.walk(np.arange(length), seed, values, length)
    else:
        values[:] = _small_permutation(length, seed)
    values.flags.writeable = False
    return _keep(key, (buffer, values))


def _keep(key: tuple[int, int], permutations: _Kept) -> _Kept:
    global _kept_count
    with _kept_lock:
        if key in _kept:
            return _kept[key]
        _kept[key] = permutations
        _kept_count += key[0]
        while _kept_count > _KEPT_INDICES:
            oldest = next(iter(_kept))
            del _kept[oldest]
            _kept_count -= oldest[0]
    return permutations


def _small_permutation(length: int, seed: int) -> Indices:
    if length == 1:
        return np.zeros(1, np.int64)
    block = np.arange(SMALL_LENGTH)
    enciphered = _shuffle_array(
        block, SMALL_LENGTH - 1, round_keys(seed, _DATASET_ROUNDS), word_bits=8
    )
    positions = enciphered[:length]
    # A walk may take thousands of steps, so double the step size in each iteration.
    step = np.where(block < length, block, enciphered)
    while (positions >= length).any():
        positions = step[positions]
        step = step[step]
    return positions
