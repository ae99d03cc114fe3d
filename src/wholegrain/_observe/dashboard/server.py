"""Serves the dashboard: one page, and a stream of what it shows."""

from __future__ import annotations

import asyncio
import hmac
import importlib.resources
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

from wholegrain._core.install import install_command
from wholegrain._observe import live
from wholegrain._observe.dashboard.feed import Feed, Recording

if TYPE_CHECKING:
    from starlette.requests import Request

_STOP_S = 5.0


class Dashboard:
    """A dashboard that is being served, until `close` or the end of the program.

    Args:
        feed: What to show.
        port: The port; 0 for any free one.
        host: The address to listen on. The default can only be reached from this machine.

    Attributes:
        url: The address of the page, with the token without which nothing is shown.
    """

    def __init__(self, feed: Feed | Recording, port: int = 0, host: str = "127.0.0.1") -> None:
        try:
            import uvicorn
        except ImportError:
            raise ImportError(
                "The dashboard needs the packages `starlette` and `uvicorn`:"
                f" `{install_command('dashboard')}`."
            ) from None
        self._token = secrets.token_urlsafe(18)
        self._socket = socket.create_server((host, port))
        found = self._socket.getsockname()[1]
        shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
        self.url = f"http://{shown}:{found}/?token={self._token}"
        config = uvicorn.Config(
            _app(feed, self._token),
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._ended = threading.Event()
        threads = [threading.Thread(target=self._serve, name="wholegrain-dashboard", daemon=True)]
        if feed.records:
            threads.append(threading.Thread(target=self._look, args=(feed,), daemon=True))
        for thread in threads:
            thread.start()
        self._thread = threads[0]

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def _look(self, feed: Feed) -> None:
        while not self._ended.wait(feed.interval):
            feed.latest()

    def wait(self) -> None:
        """Wait until somebody else closes it, or Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """Stop serving."""
        self._ended.set()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Dashboard at {self.url}>"


def dashboard(port: int = 0, *, host: str = "127.0.0.1", interval: float = 1.0) -> Dashboard:
    """Serve a web page that shows the pipelines of this program while they run.

    Only who knows the address, with its token, can look. By default it can only be reached from
    this machine.

    Args:
        port: The port; 0 for any free one.
        host: The address to listen on.
        interval: Seconds between two updates.

    Returns:
        The dashboard. Its `url` is the address to open, and `close()` ends it.

    Example:
        >>> board = wg.dashboard()
        >>> print(board.url)
    """
    if not interval > 0:
        raise ValueError(f"`interval` has to be more than 0 seconds, but got {interval}.")
    return Dashboard(Feed([live.snapshot], interval), port, host)


def _app(feed: Feed | Recording, token: str) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    page = importlib.resources.files(__package__).joinpath("page.html").read_text("utf-8")
    headers = {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
            " connect-src 'self'; img-src data:; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    def guarded(answer: Any) -> Any:
        async def checked(request: Request) -> Any:
            given = request.query_params.get("token", "")
            if not hmac.compare_digest(given.encode(), token.encode()):
                text = "The address needs the token that the dashboard printed."
                return PlainTextResponse(text, 403, headers)
            return await answer(request)

        return checked

    def answered(values: Any, status: int = 200) -> Any:
        return Response(_text(values), status, headers, "application/json")

    async def show_page(request: Request) -> Any:
        return HTMLResponse(page, headers=headers)

    async def stream(request: Request) -> Any:
        return StreamingResponse(_events(feed), media_type="text/event-stream", headers=headers)

    async def snapshot(request: Request) -> Any:
        found = await asyncio.to_thread(feed.snapshots)
        return answered(found, 404 if found is None else 200)

    async def frames(request: Request) -> Any:
        found = feed.frames if isinstance(feed, Recording) else None
        return answered(found)

    return Starlette(
        routes=[
            Route("/", guarded(show_page)),
            Route("/events", guarded(stream)),
            Route("/snapshot", guarded(snapshot)),
            Route("/frames", guarded(frames)),
        ]
    )


async def _events(feed: Feed | Recording) -> AsyncIterator[str]:
    """Yield the history, and then a frame per interval, as server-sent events."""
    frame = await asyncio.to_thread(feed.latest)
    yield f"event: history\ndata: {_text(feed.history())}\n\n"
    while True:
        yield f"data: {_text(frame)}\n\n"
        if isinstance(feed, Recording):
            yield "event: recording\ndata: {}\n\n"
            return
        await asyncio.sleep(feed.interval)
        frame = await asyncio.to_thread(feed.latest)


def _text(values: Any) -> str:
    """Return values as JSON. Those of this program may have types of numpy, or of users."""
    return json.dumps(values, default=str)
