"""How objects in stores are read: time-outs, retries, access, and a cache on local disk."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from wholegrain._core.whole_number import whole_number
from wholegrain._workers import startup
from wholegrain.sources.cache import Cache

_SET_UP = "wholegrain.sources.remote_options:_restore"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """How objects in stores such as S3 are read.

    A read that fails is repeated until it succeeds or `deadline_s` has passed. Between two attempts
    it pauses for a random time that grows up to `max_pause_s`. An answer that will not change, such
    as "no such object" or "access denied", is raised at once.

    Args:
        timeout_s: How long to wait for the answer to one request.
        deadline_s: How long to go on with a read, over all its attempts. A store that is
            unavailable for less than this does not end the run.
        max_pause_s: The longest pause between two attempts.
        hedge_after_s: If the answer takes longer than this, the same request is sent a second
            time, and the first answer is used. None never sends a second request.
        max_connections: How many requests this process makes at the same time. Only the options
            of the whole program count, because all sources share the connections.
        endpoint: The address of the server, for stores that are compatible with S3. By default
            the environment variable of the store's tools, such as AWS_ENDPOINT_URL.
        anonymous: Whether to send requests without credentials, for public data.
        config: More settings of the store, by their names in `obstore` (`region`,
            `access_key_id`, `secret_access_key`, ...). They are not shown by `repr`.
        cache: Where to keep what has been read, on local disk.

    Example:
        >>> options = RemoteOptions(anonymous=True, deadline_s=600, cache=Cache("cache"))
        >>> set_remote_options(options, under="s3://public-data/")
    """

    timeout_s: float = 30.0
    deadline_s: float = 300.0
    max_pause_s: float = 10.0
    hedge_after_s: float | None = 3.0
    max_connections: int = 64
    endpoint: str | None = None
    anonymous: bool = False
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    cache: Cache | None = None

    def __post_init__(self) -> None:
        for name in ("timeout_s", "deadline_s", "max_pause_s", "hedge_after_s"):
            value = getattr(self, name)
            if name == "hedge_after_s" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"`{name}` has to be a number of seconds, but got {value!r}.")
            if not 0 < value < float("inf"):
                raise ValueError(f"`{name}` has to be more than 0 seconds, but got {value}.")
        wanted = "`max_connections` has to be a whole number"
        if whole_number("max_connections", self.max_connections, wanted) < 1:
            raise ValueError(f"`max_connections` is {self.max_connections}, but one is needed.")
        if self.cache is not None and not isinstance(self.cache, Cache):
            raise TypeError(
                f"`cache` has to be a `wholegrain.sources.Cache`, but got {self.cache!r}."
            )
        if not isinstance(self.config, Mapping):
            raise TypeError(  # What it contains may be secret.
                f"`config` has to be a dict of settings, but got a {type(self.config).__name__}."
            )

    def __repr__(self) -> str:
        shown = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.repr
        }
        if self.endpoint is not None:
            shown["endpoint"] = without_user(str(self.endpoint))
        return f"RemoteOptions({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __reduce__(self) -> Any:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _remake, ({**fields, "config": dict(self.config)},)

    __hash__ = object.__hash__  # `config` may not be hashable.


def without_user(text: str) -> str:
    """Hide the user names and passwords of the addresses in a text."""
    return re.sub(r"://[^\s/]*@", "://***@", text)


def _remake(fields: dict[str, Any]) -> RemoteOptions:
    return RemoteOptions(**fields)


_by_prefix: dict[str, RemoteOptions] = {}
_DEFAULT = RemoteOptions()


def set_remote_options(options: RemoteOptions | None, *, under: str = "") -> None:
    """Set how objects are read from now on, in this program and in its workers.

    Call it before sources are created. Of several settings, the longest `under` that contains an
    address applies, as a whole.

    Args:
        options: The options; None removes the setting.
        under: The beginning of the addresses that they are for: a store (`"s3://"`), a bucket, a
            folder or an object. By default they are for the whole program.
    """
    if options is not None and not isinstance(options, RemoteOptions):
        raise TypeError(f"`options` has to be `RemoteOptions`, but got {options!r}.")
    if under and "://" not in under:
        raise ValueError(
            f"`under` has to be the beginning of an address, such as 's3://bucket/', but got"
            f" {under!r}."
        )
    if options is None:
        _by_prefix.pop(under, None)
    else:
        _by_prefix[under] = options
    startup.add(_SET_UP, dict(_by_prefix))


def _restore(by_prefix: dict[str, RemoteOptions]) -> None:
    """Take over the options of the main process in a worker."""
    _by_prefix.clear()
    _by_prefix.update(by_prefix)


def options_for(url: str) -> RemoteOptions:
    """Return the options for an address; `""` for those of the whole program."""
    if not _by_prefix:
        return _DEFAULT
    fitting = [prefix for prefix in _by_prefix if _contains(prefix, url)]
    return _by_prefix[max(fitting, key=len)] if fitting else _DEFAULT


def has_options(url: str) -> bool:
    """Return whether options were set for an address."""
    return any(_contains(prefix, url) for prefix in _by_prefix)


def _contains(prefix: str, url: str) -> bool:
    """Return whether an address is under a prefix, which never ends within a name."""
    rest = url[len(prefix) :]
    return url.startswith(prefix) and (prefix[-1:] in ("", "/") or rest[:1] in ("", "/"))
