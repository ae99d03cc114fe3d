"""Which requests to make for many parts of an object."""

import bisect
from collections.abc import Sequence

# Reading a small gap costs less than another request; and large parts are quicker in pieces, read
# at the same time.
_SMALL_GAP = 64 << 10
_MOST_BYTES = 8 << 20


class Ranges:
    """Parts of an object, in any order, and the requests that cover them.

    Parts that are close to each other become one request, and a large part becomes several.

    Args:
        starts: The first byte of each part.
        stops: The byte after the last of each part; parts may be empty.
    """

    def __init__(self, starts: Sequence[int], stops: Sequence[int]) -> None:
        self._parts = list(zip(starts, stops, strict=True))
        self.requests: list[tuple[int, int]] = []
        for start, stop in sorted(part for part in self._parts if part[0] < part[1]):
            if self.requests:
                first, last = self.requests[-1]
                start = max(start, last)  # What lies before `last` is covered already.
                if start - last <= _SMALL_GAP and stop - first <= _MOST_BYTES:
                    self.requests[-1] = (first, max(last, stop))
                    continue
            self.requests += [
                (at, min(at + _MOST_BYTES, stop)) for at in range(start, stop, _MOST_BYTES)
            ]

    def cut(self, answers: Sequence[bytes]) -> list[bytes]:
        """Return the parts, from the answers to `requests`."""
        firsts = [start for start, _ in self.requests]
        return [self._part(firsts, answers, start, stop) for start, stop in self._parts]

    def _part(self, firsts: list[int], answers: Sequence[bytes], start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        number = bisect.bisect_right(firsts, start) - 1
        first, last = self.requests[number]
        if stop <= last:
            whole = answers[number]
            return whole if len(whole) == stop - start else whole[start - first : stop - first]
        pieces = []
        while start < stop:
            first, last = self.requests[number]
            piece = answers[number][start - first : stop - first]
            pieces.append(piece)
            start += len(piece)
            number += 1
        return b"".join(pieces)
