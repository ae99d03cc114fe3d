"""The list of objects under a folder of a store, made once for processes that need it together."""

from __future__ import annotations

import json
import os
import time

from wholegrain._core.interruption import suppress_errors
from wholegrain._core.log import logger
from wholegrain.sources import _remote
from wholegrain.sources._cache_folder import cache_folder, digest, locked, write_whole
from wholegrain.sources.remote_options import options_for

# The beginnings of the names of environment variables that the stores' libraries use.
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


def list_objects(url: str, patience_s: float | None = None) -> list[str]:
    """Return the keys of all objects under the folder at `url`.

    If another process of this user and machine is listing the same folder, this one waits for it
    and takes its list. A list that was complete before this call is never used. But the other
    process may have begun before it, so objects that were added meanwhile may be missing.
    """
    folder = cache_folder()
    if folder is None or not _remote.is_same_everywhere(url):
        return _remote.list_objects(url, patience_s)
    path = os.path.join(folder, "listings", digest(url, *_access(url)))
    begun = time.time_ns()
    waited = False

    def waiting() -> None:
        nonlocal waited
        waited = True
        logger().info("Waiting for another process, which is listing %s.", url)

    with locked(path, waiting):
        if waited:
            found = _kept(path, url, begun)
            if found is not None:
                return found
        else:
            with suppress_errors(OSError):
                os.unlink(path)  # If this listing fails, nobody takes an earlier one for it.
            found = _remote.list_objects(url, patience_s)
            with suppress_errors(OSError):
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                text = json.dumps({"url": url, "complete": time.time_ns(), "keys": found})
                write_whole(path, [text.encode()], sync=False)
            return found
    # The other process has failed. Not under the lock: if the store is down, processes would
    # otherwise learn it one after another.
    return _remote.list_objects(url, patience_s)


def _access(url: str) -> list[object]:
    """Return what decides which store is asked, and what this user sees there."""
    options = options_for(url)
    settings = sorted((name, str(value)) for name, value in options.config.items())
    variables = [item for item in sorted(os.environ.items()) if item[0].startswith(_VARIABLES)]
    return [options.endpoint, options.anonymous, settings, variables]


def _kept(path: str, url: str, begun: int) -> list[str] | None:
    """Return the list in a file, if it became complete after a time."""
    try:
        with open(path, "rb") as file:
            kept = json.load(file)
        if kept["url"] == url and kept["complete"] >= begun:
            return [str(key) for key in kept["keys"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
