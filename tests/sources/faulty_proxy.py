"""An HTTP proxy in front of a store that answers badly, at random, as a bad network does."""

import contextlib
import http.client
import http.server
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

FAULTS = ("drop", "reset", "truncate", "503", "429", "delay", "hang")


class FaultyProxy:
    """Passes requests on to `target`, except for a share of them.

    Args:
        target: The address of the server.
        share: The probability that a request fails.
        faults: How it fails.
        seed: Selects which requests fail.
    """

    def __init__(
        self, target: str, share: float = 0.0, faults: tuple[str, ...] = FAULTS, seed: int = 0
    ) -> None:
        self.target = urlsplit(target).netloc
        self.share = share
        self.faults = faults
        self.is_down = False
        self.latency_s = 0.0
        self.hang_s = 1.5
        self.counts: Counter[str] = Counter()
        self.random = random.Random(seed)
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                proxy._handle(self)

            do_GET = do_HEAD = do_PUT = do_POST = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultyProxy"]:
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _fault(self) -> str:
        with self._lock:
            if self.is_down:
                return "hang"
            if self.random.random() >= self.share:
                return ""
            return self.random.choice(self.faults)

    def _handle(self, request: http.server.BaseHTTPRequestHandler) -> None:
        fault = self._fault()
        with self._lock:
            self.counts[fault or "passed"] += 1
            self.counts["list"] += "list-type=2" in request.path
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if fault == "hang":
            time.sleep(self.hang_s)
        if fault in ("drop", "hang"):
            request.close_connection = True
            request.connection.close()
            return
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            request.connection.close()
            request.close_connection = True
            return
        if fault in ("503", "429"):
            request.send_response(int(fault))
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        time.sleep(self.latency_s + (0.3 if fault == "delay" else 0.0))
        status, headers, content = self._forward(request, body)
        request.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "server", "date"):
                request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            if fault == "truncate":
                request.wfile.write(content[: len(content) // 2])
                request.wfile.flush()
                request.close_connection = True
                request.connection.shutdown(socket.SHUT_RDWR)
                return
            request.wfile.write(content)

    def _forward(
        self, request: http.server.BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.target, timeout=30)
        try:
            connection.request(request.command, request.path, body, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
