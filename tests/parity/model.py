"""The order of elements, written down a second time: plain, slow, and of no help to the package."""

import math
from collections.abc import Callable


def index_shuffle(index: int, max_index: int, seed: int, rounds: int) -> int:
    """Return the place of `index` in a permutation of 0 to `max_index`."""
    if max_index == 0:
        return 0
    bits = math.ceil(math.log2(max_index))
    word_bits = max(bits + bits % 2, 16) // 2
    keys = round_keys(seed, rounds)
    value = index
    if value >> (2 * word_bits):
        return value  # It does not fit into the block, so that the cipher would alias it.
    while True:
        value = _encrypt(value, word_bits, keys)
        if value <= max_index:
            return value


def round_keys(seed: int, rounds: int) -> list[int]:
    """Return what C++'s `std::seed_seq{seed}` generates."""
    n = rounds
    out = [0x8B8B8B8B] * n
    t = 11 if n >= 623 else 7 if n >= 68 else 5 if n >= 39 else 3 if n >= 7 else (n - 1) // 2
    p = (n - t) // 2
    q = p + t

    def mixed(x: int) -> int:
        return x ^ (x >> 27)

    for k in range(n):
        r1 = 1664525 * mixed(out[k] ^ out[(k + p) % n] ^ out[k - 1]) % 2**32
        r2 = (r1 + (1 if k == 0 else k + seed if k == 1 else k)) % 2**32
        out[(k + p) % n] = (out[(k + p) % n] + r1) % 2**32
        out[(k + q) % n] = (out[(k + q) % n] + r2) % 2**32
        out[k] = r2
    for k in range(n):
        r3 = 1566083941 * mixed((out[k] + out[(k + p) % n] + out[k - 1]) % 2**32) % 2**32
        r4 = (r3 - k) % 2**32
        out[(k + p) % n] ^= r3
        out[(k + q) % n] ^= r4
        out[k] = r4
    return out


def _encrypt(value: int, word_bits: int, keys: list[int]) -> int:
    mask = (1 << word_bits) - 1

    def rotated(x: int, by: int) -> int:
        return ((x << by) & mask) | (x >> (word_bits - by))

    def round_function(x: int) -> int:
        return (rotated(x, 1) & rotated(x, 8)) ^ rotated(x, 2)

    left, right = value >> word_bits, value & mask
    for j in range(0, len(keys), 2):
        left ^= round_function(right) ^ (keys[j] & mask)
        right ^= round_function(left) ^ (keys[j + 1] & mask)
    return (left << word_bits) | right


def window_shuffled(
    index: int,
    length: int,
    window_size: int,
    seed: int,
    shuffle: Callable[[int, int, int, int], int] = index_shuffle,
) -> int:
    """Return the parent's index: windows start anew with each epoch, the last one may be short."""
    epoch, position = divmod(index, length)
    window, offset = divmod(position, window_size)
    start = window * window_size
    size = min(window_size, length - start)
    number = epoch * math.ceil(length / window_size) + window
    return epoch * length + start + shuffle(offset, size - 1, (seed + number) % 2**32, 4)


def mix_position(position: int, weights: list[int]) -> tuple[int, int]:
    """Return the component that stands at `position` of a mixture, and the index in it."""
    before, after = _taken(position, weights), _taken(position + 1, weights)
    for component, (count, next_count) in enumerate(zip(before, after, strict=True)):
        if count != next_count:
            return component, next_count - 1
    raise AssertionError("Every position belongs to a component.")


def _taken(count: int, weights: list[int]) -> list[int]:
    """Return how many of the first `count` positions each component fills."""
    taken = []
    total = sum(weights)
    for weight in weights:
        rest = count * (total - weight) // total
        taken.append(count - rest)
        count, total = rest, total - weight
    return taken
