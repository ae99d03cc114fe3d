"""A store on this machine that answers each request 30 ms late, by the S3 protocol.

python latency_server.py FOLDER        prints its port, and serves the files of FOLDER

It computes little, so that clients wait for its latency and do not compete with it for processors.
"""

import asyncio
import hashlib
import mmap
import re
import sys
from pathlib import Path

LATENCY_S = 0.03
_REQUEST = re.compile(rb"(GET|HEAD) /[^/ ]*/([^ ?]*)")
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-(\d*)", re.IGNORECASE)
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

_objects: dict[str, tuple[mmap.mmap, str]] = {}


def _object(key: str) -> tuple[mmap.mmap, str] | None:
    """Return the content of an object and its etag; None if there is none."""
    if key not in _objects:
        path = Path(sys.argv[1]) / key
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _objects[key] = content, hashlib.sha1(f"{path}{len(content)}".encode()).hexdigest()
    return _objects[key]


def answer(request: bytes) -> bytes:
    """Return the answer to `GET /bucket/key` or `HEAD`, with ranges and etags."""
    asked = _REQUEST.match(request)
    found = _object(asked[2].decode()) if asked else None
    if asked is None or found is None:
        return _MISSING
    content, tag = found
    size = len(content)
    part = _RANGE.search(request)
    start, stop = (int(part[1]), min(int(part[2] or size) + 1, size)) if part else (0, size)
    head = (
        f"HTTP/1.1 {'206 Partial Content' if part else '200 OK'}\r\n"
        f'ETag: "{tag}"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n'
        f"Content-Length: {stop - start}\r\nContent-Range: bytes {start}-{stop - 1}/{size}\r\n\r\n"
    ).encode()
    return head if asked[1] == b"HEAD" else head + content[start:stop]


class Connection(asyncio.Protocol):
    """Answers the requests on one connection, which send nothing but headers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        loop = asyncio.get_running_loop()
        for request in requests:
            loop.call_later(LATENCY_S, self._answer, request)

    def _answer(self, request: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer(request))


async def serve() -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
