"""Objects in stores such as S3 or GCS: listing them, and reading parts of them.

`obstore` is used if it is installed and supports the scheme; otherwise a file system of `fsspec`.
Credentials, regions and endpoints come from the environment variables that these libraries and
the stores' own tools use (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...).
"""

import abc
import contextlib
import errno
import importlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from wholegrain._core.install import install_command
from wholegrain._core.interruption import is_interruption
from wholegrain.sources._errors import UnreadableFileError, unreadable

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]+)://(?P<bucket>[^/]*)/?(?P<key>.*)", re.DOTALL
)
_OBSTORE_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})


def is_remote(path: str) -> bool:
    """Return whether `path` is the address of an object in a store."""
    match = _URL.match(path)
    return match is not None and match["scheme"].lower() != "file"


class Store(abc.ABC):
    """One bucket of a store. Safe to use from several threads."""

    @abc.abstractmethod
    def size(self, key: str) -> int:
        """Return the number of bytes of an object."""

    @abc.abstractmethod
    def read(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop - 1`, or fewer at the end of the object."""

    @abc.abstractmethod
    def read_all(self, key: str) -> bytes:
        """Return all bytes of an object."""

    @abc.abstractmethod
    def read_ranges(self, key: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """Return several parts of an object, read at the same time."""

    @abc.abstractmethod
    def list(self, prefix: str) -> list[str]:
        """Return the keys of all objects under the folder `prefix`."""


class _Obstore(Store):
    def __init__(self, url: str) -> None:
        self._library: Any = importlib.import_module("obstore")
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "") or os.environ.get("AWS_ENDPOINT", "")
        options = {"allow_http": True} if endpoint.startswith("http://") else None
        stores: Any = importlib.import_module("obstore.store")
        self._store = stores.from_url(url, client_options=options)

    def size(self, key: str) -> int:
        return int(self._library.head(self._store, key)["size"])

    def read(self, key: str, start: int, stop: int) -> bytes:
        return bytes(self._library.get_range(self._store, key, start=start, end=stop))

    def read_all(self, key: str) -> bytes:
        return bytes(self._library.get(self._store, key).bytes())

    def read_ranges(self, key: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        parts = self._library.get_ranges(self._store, key, starts=starts, ends=stops)
        return [bytes(part) for part in parts]

    def list(self, prefix: str) -> list[str]:
        listing = self._library.list(self._store, prefix=prefix or None)
        return [str(entry["path"]) for page in listing for entry in page]


class _Fsspec(Store):
    def __init__(self, scheme: str, bucket: str) -> None:
        library: Any = importlib.import_module("fsspec")
        self._files = library.filesystem(scheme)
        self._root = bucket

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if self._root else key

    def size(self, key: str) -> int:
        return int(self._files.size(self._path(key)))

    def read(self, key: str, start: int, stop: int) -> bytes:
        data: bytes = self._files.cat_file(self._path(key), start=start, end=stop)
        return data

    def read_all(self, key: str) -> bytes:
        data: bytes = self._files.cat_file(self._path(key))
        return data

    def read_ranges(self, key: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        paths = [self._path(key)] * len(starts)
        parts: list[bytes] = self._files.cat_ranges(paths, list(starts), list(stops))
        return parts

    def list(self, prefix: str) -> list[str]:
        found = self._files.find(self._path(prefix))
        start = len(self._root) + 1 if self._root else 0
        return [path.lstrip("/")[start:] for path in found]


_lock = threading.Lock()
_stores: dict[tuple[int, str, str], Store] = {}
_obstore_process: int | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def locate(url: str) -> tuple[Store, str]:
    """Return the store of an address, and the key of the object in it."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{url!r} is not the address of an object in a store.")
    name = (os.getpid(), match["scheme"].lower(), match["bucket"])
    with _lock:
        store = _stores.get(name)
        if store is None:
            store = _stores[name] = _open_store(name[1], name[2])
    return store, match["key"]


def _open_store(scheme: str, bucket: str) -> Store:
    global _obstore_process
    # obstore's threads do not survive a fork: a forked child that uses it would deadlock.
    forked = _obstore_process not in (None, os.getpid())
    reasons: list[str] = []
    if scheme in _OBSTORE_SCHEMES and not forked:
        try:
            store = _Obstore(f"{scheme}://{bucket}")
        except ImportError as error:
            reasons.append(str(error))
        else:
            _obstore_process = os.getpid()
            return store
    if forked:
        reasons.append(
            "`obstore` was used before this process was forked; start the process with `spawn`"
        )
    try:
        return _Fsspec(scheme, bucket)
    except (ImportError, ValueError) as error:
        reasons.append(str(error))
    raise ImportError(
        f"No installed library can read {scheme}://{bucket} ({'; '.join(reasons)})."
        f" Install one with `{install_command('remote')}`."
    )


@contextlib.contextmanager
def named(url: str) -> Iterator[None]:
    """Name the object in errors of its store."""
    try:
        yield
    except OSError as error:
        raise unreadable(url, error) from error
    except Exception as error:
        if isinstance(error, ImportError) or is_interruption(error):
            raise
        problem = f"The store returned an error ({type(error).__name__}: {error})"
        raise UnreadableFileError(errno.EIO, problem, url) from error


def size(url: str) -> int:
    """Return the number of bytes of the object at `url`."""
    store, key = locate(url)
    with named(url):
        return store.size(key)


def read_all(url: str) -> bytes:
    """Return the whole object at `url`."""
    store, key = locate(url)
    with named(url):
        return store.read_all(key)


def list_under(url: str) -> list[str]:
    """Return the keys of all objects under the folder at `url`."""
    store, key = locate(url)
    with named(url):
        return store.list(key)
