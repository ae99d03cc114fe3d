"""Reads through a cache in a process of its own, and may be killed at any time."""

import sys
import zlib

from wholegrain.sources import Cache, RemoteOptions, set_remote_options
from wholegrain.sources._files import open_file


def main(directory: str, max_bytes: str, endpoint: str, seed: str) -> None:
    """Read parts of all objects at random and check them, until killed."""
    import random

    cache = Cache(directory, max_bytes=int(max_bytes), block_bytes=4096)
    options = RemoteOptions(endpoint=endpoint, cache=cache)
    set_remote_options(options)
    rng = random.Random(int(seed))
    print("ready", flush=True)
    for _ in range(10_000):
        number = rng.randrange(4)
        file = open_file(f"s3://data/kill/{number}")
        starts = [rng.randrange(file.size) for _ in range(8)]
        for start, part in zip(starts, file.read_ranges(starts, [3000] * 8), strict=True):
            if part != content(number)[start : start + 3000]:
                print("WRONG", number, start, flush=True)
                sys.exit(1)


def content(number: int) -> bytes:
    """Return what object `number` contains."""
    return b"".join(zlib.crc32(b"%d %d" % (number, i)).to_bytes(4, "big") for i in range(16_000))


if __name__ == "__main__":
    main(*sys.argv[1:])
