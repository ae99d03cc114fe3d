"""`wholegrain index`: builds the indexes of files ahead of time."""

import argparse
import json
import os
import time
from typing import Any

from wholegrain._cli.console import Console, size_text, time_text
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, Found, find, open_source


def run(arguments: argparse.Namespace) -> int:
    """Build the indexes of the files at some paths."""
    found = [find(path) for path in arguments.paths]
    for each in found:
        if not each.format.has_index:
            needing = ", ".join(each for each in Format if each.has_index)
            raise BadInput(
                f"{each.path!r} is of the format {each.format}, which needs no index; only"
                f" {needing} do."
            )
    results = [_index(each) for each in found]
    if arguments.json:
        print(json.dumps(results, indent=2))
        return 0
    console = Console()
    for result in results:
        console.line(result["path"], "bold")
        saved = [place for place in result["indexes"] if place is not None]
        facts = [
            ("format", result["format"]),
            ("records", f"{result['records']:,}"),
            ("indexes", f"{len(saved):,}, {size_text(result['bytes'])}, {_where(saved)}"),
            ("took", time_text(result["seconds"])),
        ]
        console.facts(facts)
    return 1 if any(None in result["indexes"] for result in results) else 0


def _index(found: Found) -> dict[str, Any]:
    started = time.perf_counter()
    source = open_source(found)
    places: list[str | None] = source.index_files
    sizes = [os.path.getsize(place) for place in places if place is not None]
    return {
        "path": found.path,
        "format": str(found.format),
        "records": len(source),
        "files": found.files,
        "indexes": places,
        "bytes": sum(sizes),
        "seconds": time.perf_counter() - started,
    }


def _where(places: list[str]) -> str:
    folders = sorted({os.path.dirname(place) for place in places})
    return "in " + ", ".join(folders) if folders else "none could be saved"
