"""Objects in stores such as S3 or GCS: listing them, and reading parts of them.

`obstore` is used if it is installed and supports the scheme; otherwise a file system of `fsspec`.
Credentials, regions and endpoints come from `RemoteOptions`, or from the environment variables that
these libraries and the stores' own tools use (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...).
"""

import abc
import contextlib
import dataclasses
import errno
import functools
import importlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from wholegrain._core.install import install_command
from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain.sources._errors import (
    CorruptFileError,
    DataFileError,
    UnreadableFileError,
    missing_file,
    unreadable,
)
from wholegrain.sources._progress import Pace
from wholegrain.sources._ranges import Ranges
from wholegrain.sources._requests import UnansweredError, answer, requests
from wholegrain.sources.remote_options import RemoteOptions, options_for

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]+)://(?P<bucket>[^/]*)/?(?P<key>.*)", re.DOTALL
)
_OBSTORE_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})
# All names that `obstore` accepts for the address of the server, in upper or lower case.
_ENDPOINT = re.compile(r"((aws|azure|azure_storage)_)?endpoint(_url)?", re.IGNORECASE)


def is_remote(path: str) -> bool:
    """Return whether `path` is the address of an object in a store."""
    match = _URL.match(path)
    return match is not None and match["scheme"].lower() != "file"


def is_same_everywhere(url: str) -> bool:
    """Return whether all processes find the same objects there, unlike at `memory://`."""
    match = _URL.match(url)
    return match is not None and match["scheme"].lower() in _OBSTORE_SCHEMES


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """What identifies the content of an object.

    Args:
        size: The number of bytes.
        tag: What changes whenever the content does: the etag, or the time of the last change.
            Empty if the store tells neither.
    """

    size: int
    tag: str


class ChangedError(Exception):
    """An object has another tag than when it was opened."""


class Store(abc.ABC):
    """One bucket of a store. Safe to use from several threads."""

    tells_tag_with_content = False
    """Whether `read` itself raises `ChangedError`. Otherwise `info` has to be asked after it."""

    @abc.abstractmethod
    def info(self, key: str) -> ObjectInfo:
        """Return the size and the identity of an object."""

    @abc.abstractmethod
    def read(self, key: str, start: int, stop: int, tag: str) -> bytes:
        """Return bytes `start` to `stop - 1` of the object that has `tag`."""

    @abc.abstractmethod
    def list(self, prefix: str) -> list[str]:
        """Return the keys of all objects under the folder `prefix`."""


class _Obstore(Store):
    tells_tag_with_content = True

    def __init__(self, url: str, options: RemoteOptions) -> None:
        self._library: Any = importlib.import_module("obstore")
        self._url = url
        config = dict(options.config)
        if options.endpoint is not None:
            config["endpoint"] = options.endpoint
        if options.anonymous:
            config["skip_signature"] = True
        endpoints = [str(value) for name, value in config.items() if _ENDPOINT.fullmatch(name)]
        endpoints += [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")]
        endpoint = next(filter(None, endpoints), "")
        client = {
            "allow_http": endpoint.lower().startswith("http://"),
            "timeout": timedelta(seconds=options.timeout_s),
            "connect_timeout": timedelta(seconds=options.timeout_s),
        }
        # `_requests` repeats what fails: the library's own attempts end after a few seconds.
        retry = {"max_retries": 0, "retry_timeout": timedelta(seconds=options.timeout_s)}
        stores: Any = importlib.import_module("obstore.store")
        self._store = stores.from_url(
            url, config=config or None, client_options=client, retry_config=retry
        )

    def info(self, key: str) -> ObjectInfo:
        found = self._library.head(self._store, key)
        return ObjectInfo(int(found["size"]), self._tag(found))

    def read(self, key: str, start: int, stop: int, tag: str) -> bytes:
        options: dict[str, Any] = {"range": (start, stop)}
        if tag.startswith('"'):  # By definition, a weak etag (`W/"..."`) never matches.
            options["if_match"] = tag
        found = self._library.get(self._store, key, options=options)
        if self._tag(found.meta) != tag:
            raise ChangedError
        return bytes(found.bytes())

    @staticmethod
    def _tag(meta: Any) -> str:
        return meta["e_tag"] or str(meta["last_modified"] or "")

    def list(self, prefix: str) -> list[str]:
        pace = Pace()
        found: list[str] = []
        for page in self._library.list(self._store, prefix=prefix or None):
            found += [str(entry["path"]) for entry in page]
            if pace.is_due():
                logger().warning("Listing %s/%s: %d objects so far.", self._url, prefix, len(found))
        return found


class _Fsspec(Store):
    def __init__(self, scheme: str, bucket: str, options: RemoteOptions) -> None:
        library: Any = importlib.import_module("fsspec")
        settings: dict[str, Any] = dict(options.config)
        if options.anonymous:
            settings["anon"] = True
        if options.endpoint is not None:
            settings["endpoint_url"] = options.endpoint
        self._files = library.filesystem(scheme, **settings)
        self._root = bucket

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if self._root else key

    def info(self, key: str) -> ObjectInfo:
        path = self._path(key)
        self._files.invalidate_cache(path)  # The listing of a folder may be old.
        found = self._files.info(path)
        names = ("ETag", "etag", "LastModified", "mtime", "last_modified")
        tag = next((str(found[name]) for name in names if found.get(name)), "")
        if not tag:
            with contextlib.suppress(NotImplementedError, KeyError):
                tag = str(self._files.modified(path))
        return ObjectInfo(int(found["size"]), tag)

    def read(self, key: str, start: int, stop: int, tag: str) -> bytes:
        return bytes(self._files.cat_file(self._path(key), start=start, end=stop))

    def list(self, prefix: str) -> list[str]:
        found = self._files.find(self._path(prefix))
        start = len(self._root) + 1 if self._root else 0
        return [path.lstrip("/")[start:] for path in found]


_lock = threading.Lock()
_stores: dict[tuple[int, str, str, int], tuple[Store, RemoteOptions]] = {}
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
    options = options_for(url)
    name = (os.getpid(), match["scheme"].lower(), match["bucket"], id(options))
    with _lock:
        if name not in _stores:
            # The options are kept, so that no others get their `id`.
            _stores[name] = _open_store(name[1], name[2], options), options
        return _stores[name][0], match["key"]


def _open_store(scheme: str, bucket: str, options: RemoteOptions) -> Store:
    global _obstore_process
    # obstore's threads do not survive a fork: a forked child that uses it would deadlock.
    forked = _obstore_process not in (None, os.getpid())
    reasons: list[str] = []
    if scheme in _OBSTORE_SCHEMES and not forked:
        try:
            store = _Obstore(f"{scheme}://{bucket}", options)
        except ImportError as error:
            reasons.append(str(error))
        except Exception as error:
            if is_interruption(error):
                raise
            raise ValueError(
                f"{scheme}://{bucket} cannot be opened with {options}: {answer(error)}"
            ) from error
        else:
            _obstore_process = os.getpid()
            return store
    if forked:
        reasons.append(
            "`obstore` was used before this process was forked; start the process with `spawn`"
        )
    try:
        return _Fsspec(scheme, bucket, options)
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
    except DataFileError:
        raise
    except OSError as error:
        raise unreadable(url, error) from error
    except Exception as error:
        if isinstance(error, ImportError) or is_interruption(error):
            raise
        kind = type(error).__name__
        if kind == "NotFoundError":
            raise missing_file(url) from error
        if kind in ("PreconditionError", "ChangedError"):
            raise CorruptFileError(
                f"{url!r} was replaced or changed while it was open. Make the source again."
            ) from error
        if kind in ("PermissionDeniedError", "UnauthenticatedError"):
            denied = OSError(errno.EACCES, f"The store denied access ({answer(error)})")
            raise unreadable(url, denied) from error
        problem = f"The store returned an error ({kind}: {answer(error)})"
        if isinstance(error, UnansweredError):
            problem = f"The store does not answer as it should: {error}"
        raise UnreadableFileError(errno.EIO, problem, url) from error


def info(url: str, patience_s: float | None = None) -> ObjectInfo:
    """Return the size and the identity of the object at `url`, as the store tells them.

    Args:
        url: The address of the object.
        patience_s: How long to try, if that is less than the options say.
    """
    store, key = locate(url)
    with named(url):
        return requests().one(url, _options(url, patience_s), functools.partial(store.info, key))


def _options(url: str, patience_s: float | None) -> RemoteOptions:
    options = options_for(url)
    if patience_s is None or patience_s >= options.deadline_s:
        return options
    return dataclasses.replace(options, deadline_s=patience_s)


def fetch(url: str, found: ObjectInfo, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
    """Return several parts of an object, read at the same time."""
    store, key = locate(url)
    ranges = Ranges(starts, stops)

    def read(start: int, stop: int) -> bytes:
        data = store.read(key, start, stop, found.tag)
        if len(data) != stop - start:
            raise OSError(
                errno.EIO, f"The store sent {len(data)} of {stop - start} bytes from {start} on"
            )
        return data

    with named(url):
        parts = [functools.partial(read, start, stop) for start, stop in ranges.requests]
        answers = requests().all(url, options_for(url), parts)
        if not store.tells_tag_with_content:
            now = requests().one(url, options_for(url), functools.partial(store.info, key))
            if now != found:
                raise ChangedError
        return ranges.cut(answers)


def list_objects(url: str, patience_s: float | None = None) -> list[str]:
    """Return the keys of all objects under the folder at `url`, as the store tells them."""
    store, key = locate(url)
    with named(url):
        return requests().one(url, _options(url, patience_s), functools.partial(store.list, key))
