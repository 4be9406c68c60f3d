"""A schema registry for tests: schemas by id and by subject, and answers that none should give."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from schemas.wire_header import MAGIC

Answer = Callable[[BaseHTTPRequestHandler], None]
"""Writes what is sent instead of a usual answer."""

SCHEMA_PATH = "/schemas/ids/"


@dataclass(frozen=True)
class Referred:
    """A schema under a subject, to which others refer."""

    name: str
    subject: str
    version: int = 1


class FakeRegistry:
    """Schemas, and the requests that were made for them."""

    def __init__(self) -> None:
        self.answers = dict[str, Mapping[str, Any]]()
        """By the path of a request."""
        self.instead: Answer | None = None
        self.asked = list[str]()
        """The paths of all requests."""
        self.headers = dict[str, str]()
        """Those of the last request."""
        self.url = ""

    def add(
        self,
        text: str,
        kind: str = "AVRO",
        *,
        refers_to: Sequence[Referred] = (),
        subject: str | None = None,
    ) -> int:
        """Register a schema. Returns its id."""
        answer: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if refers_to:
            answer["references"] = [vars(each) for each in refers_to]
        found = sum(path.startswith(SCHEMA_PATH) for path in self.answers) + 1
        self.answers[f"{SCHEMA_PATH}{found}"] = answer
        if subject is not None:
            versions = f"/subjects/{subject}/versions/"
            earlier = [path for path in self.answers if path.startswith(versions)]
            newest = max(len(earlier), 1)
            for version in (newest, "latest"):
                self.answers[f"{versions}{version}"] = {"id": found, "version": newest} | answer
        return found

    @contextmanager
    def served(self, tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
        """Serve it. Its URL is then in `url`."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.headers = dict(self.headers)
                if registry.instead is not None:
                    registry.instead(self)
                    return
                answer = registry.answers.get(self.path)
                body = {"error_code": 40403, "message": "not found"} if answer is None else answer
                send(self, 404 if answer is None else 200, json.dumps(body).encode())

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = registry.add(asked["schema"], asked.get("schemaType", "AVRO"))
                send(self, 200, json.dumps({"id": found}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Say nothing of a client that has gone."""

        server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    handler.send_header("Content-Length", str(len(body)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def with_header(schema_id: int, data: bytes) -> bytes:
    """Returns a value with the header that names its schema."""
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big") + data


def zigzag(number: int) -> bytes:
    """Returns a number as protoc would write it."""
    rest, found = (number << 1) ^ (number >> 31), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])
