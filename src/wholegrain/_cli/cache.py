"""`wholegrain cache`: what is in a cache of remote objects or of elements; fills the latter."""

import argparse
import os
from collections.abc import Iterator

from wholegrain._cli import element_caches
from wholegrain._cli.console import Console
from wholegrain._cli.errors import BadInput
from wholegrain.sources.cache import MARKER, Cache, block_name


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    console = Console()
    place = arguments.place
    if arguments.action == "build":
        return element_caches.build(place, arguments.workers, console)
    if element_caches.is_one(place):
        return element_caches.ACTIONS[arguments.action](place, console)
    if not os.path.exists(os.path.join(place, MARKER)):
        raise BadInput(f"{place!r} is not a cache of wholegrain.")
    cache = Cache(place)
    action = {"ls": _list, "verify": _verify, "clear": _clear}[arguments.action]
    return action(cache, console)


def _list(cache: Cache, console: Console) -> int:
    sizes = {name: info.st_size for name, info in cache.blocks()}
    total, count = sum(sizes.values()), len(sizes)
    for url, size, names in _objects(cache):
        held = sum(sizes.pop(name, 0) for name in names)
        if held:
            console.line(f"{min(held, size) / max(size, 1):4.0%} of {size:>15,} bytes  {url}")
    if sizes:
        console.line(f"{sum(sizes.values()):,} bytes of earlier versions of objects")
    console.line(f"{total:,} bytes in {count:,} blocks")
    return 0


def _objects(cache: Cache) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the address and size of each object that the cache knows, and its blocks' names."""
    for url, known in cache.known_urls():
        if "size" not in known:
            continue
        size, block_bytes = int(known["size"]), int(known["block_bytes"])
        numbers = range(-(-size // block_bytes))
        yield url, size, [block_name(url, size, str(known["tag"]), block_bytes, n) for n in numbers]


def _verify(cache: Cache, console: Console) -> int:
    bad = 0
    count = 0
    for name, _ in list(cache.blocks()):
        count += 1
        if not cache.is_valid(name):
            bad += 1
            cache.remove_block(name)
    if bad:
        console.line(f"{bad:,} of {count:,} blocks were damaged. They are deleted.")
        return 1
    console.line(f"All {count:,} blocks are as they were written.")
    return 0


def _clear(cache: Cache, console: Console) -> int:
    nbytes = sum(info.st_size for _, info in cache.blocks())
    cache.clear()
    console.line(f"{nbytes:,} bytes deleted.")
    return 0
