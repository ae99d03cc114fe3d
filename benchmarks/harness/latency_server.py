"""A store on this machine that answers each request 30 ms late, by the S3 protocol.

python latency_server.py FOLDER        prints its port, and serves the files of FOLDER
"""

import hashlib
import http.server
import os
import re
import sys
import time

LATENCY_S = 0.03


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers `GET /bucket/key` and `HEAD`, with ranges and etags."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        time.sleep(LATENCY_S)
        path = os.path.join(sys.argv[1], self.path.partition("?")[0].rpartition("/")[2])
        if not os.path.isfile(path):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = os.path.getsize(path)
        found = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = 0, size
        if found:
            start, stop = int(found[1]), min(int(found[2] or size - 1) + 1, size)
        self.send_response(206 if found else 200)
        tag = hashlib.sha1(f"{path}{size}".encode()).hexdigest()
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Last-Modified", self.date_time_string(os.path.getmtime(path)))
        self.send_header("Content-Length", str(stop - start))
        if found:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        if self.command == "GET":
            with open(path, "rb") as file:
                file.seek(start)
                self.wfile.write(file.read(stop - start))

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""


class Server(http.server.ThreadingHTTPServer):
    """Accepts many connections at once."""

    request_queue_size = 512
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
