"""A blocking HTTP connection that costs little itself: whole requests out, whole answers in."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from bench.base.connection import socket_to

RECEIVE_BYTES = 1 << 20
POLL_SECONDS = 0.02


class HttpConnection:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._socket = socket_to(port)
        self._host = f"127.0.0.1:{port}"

    def close(self) -> None:
        self._socket.close()

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Returns the bytes of a request."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def ask(self, request: bytes) -> bytes:
        """Send a request. Returns the body of its answer, whose status must be 200."""
        self._socket.sendall(request)
        data = self._socket.recv(RECEIVE_BYTES)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._socket.recv(RECEIVE_BYTES)
        head, body = data[:end].lower(), data[end + 4 :]
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{request[:200]!r} was answered by {data[:300]!r}")
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < size:
            body += self._socket.recv(RECEIVE_BYTES)
        return body


def call(method: str, url: str) -> dict[str, Any]:
    """Send one request on a connection of its own. Returns the JSON object of its answer."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def clean_now(http_port: int, topic: str) -> None:
    """Clean a topic, and return when that is done."""
    url = f"http://127.0.0.1:{http_port}/v1/compaction"
    job = call("POST", f"{url}/topics/{topic}/now")
    while not job["is_over"]:
        time.sleep(POLL_SECONDS)
        job = call("GET", f"{url}/jobs/{job['id']}")
