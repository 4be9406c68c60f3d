"""Asks a schema registry for schemas, over HTTP. Blocks.

What values say reaches the registry's URL only as the number of a schema, and redirects are not
followed: so nobody makes the broker ask another server. Every answer has a bound, in bytes and in time.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from urllib.parse import SplitResult

from schemas.outcomes import REGISTRY_FAILED, REGISTRY_UNREACHABLE, UNSUPPORTED_SCHEMA
from schemas.registry_access import RegistryAccess
from schemas.registry_answers import (
    LATEST,
    Reference,
    SchemaAnswer,
    Unavailable,
    schema_answer,
    subject_path,
)
from schemas.schema import Named, Schema, SchemaType

ANSWER_BYTES_MAX = 1 << 20
SCHEMA_CHARS_MAX = 4 << 20
"""A schema with all that it refers to."""
REFERENCES_MAX = 200
NESTED_MAX = 50
"""A reference in a reference, and so on."""
CONNECT_SECONDS_MAX = 3.0
NAMED_BY_A_VALUE = (
    ": it was deleted, or the value was written with another registry, or it only looks as if it named"
    " a schema"
)
SECONDS_MAX = 8.0
"""How long it takes at most to get a schema, with all that it refers to."""


class RegistryClient:
    """A client of one registry. Any thread may call; each call has a connection of its own."""

    __slots__ = ("_access",)

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access

    def schema(self, schema_id: int) -> Schema:
        """Returns a schema with all that it refers to. Raises Unavailable."""
        deadline = monotonic() + SECONDS_MAX
        path = f"/schemas/ids/{schema_id}"
        answer = self._answer(f"schema {schema_id}", path, deadline, if_missing=NAMED_BY_A_VALUE)
        return self._whole(schema_id, answer, deadline)

    def of_subject(self, subject: str, version: str = LATEST) -> Schema:
        """Returns a version of a subject, with all that it refers to. Raises Unavailable."""
        deadline = monotonic() + SECONDS_MAX
        what = f"version {version} of the subject {subject[:100]}"
        answer = self._answer(what, subject_path(subject, version), deadline)
        if answer.id is None:
            raise Unavailable(REGISTRY_FAILED, f"the registry does not say the id of {what}")
        return self._whole(answer.id, answer, deadline)

    def _whole(self, schema_id: int, answer: SchemaAnswer, deadline: float) -> Schema:
        kind = answer.schema_type()
        found: dict[str, Named] = {}
        # A JSON value is read without its schema.
        if kind is not SchemaType.JSON:
            self._resolve(answer, found, deadline, depth=0)
        return Schema(id=schema_id, type=kind, text=answer.schema, references=tuple(found.values()))

    def _resolve(
        self, answer: SchemaAnswer, found: dict[str, Named], deadline: float, *, depth: int
    ) -> None:
        """Add what a schema refers to, each after those that it refers to itself."""
        for each in answer.references or ():
            if each.name in found:
                continue
            chars = sum(len(one.text) for one in found.values())
            if depth >= NESTED_MAX or len(found) >= REFERENCES_MAX or chars > SCHEMA_CHARS_MAX:
                raise Unavailable(UNSUPPORTED_SCHEMA, "the schema refers to too many others")
            referred = self._answer(_said(each), each.path, deadline)
            self._resolve(referred, found, deadline, depth=depth + 1)
            found[each.name] = Named(each.name, referred.schema)

    def _answer(
        self, what: str, path: str, deadline: float, *, if_missing: str = ""
    ) -> SchemaAnswer:
        """Ask the nodes in turn until one answers. Raises Unavailable."""
        failures = []
        for url in self._access.urls:
            shown = url.geturl()
            try:
                status, body = self._get(url, path, deadline)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"the registry at {shown} cannot be reached: {_why(error)}")
            else:
                return schema_answer(shown, what, status, body, if_missing)
        raise Unavailable(REGISTRY_UNREACHABLE, "; ".join(failures))

    def _get(self, url: SplitResult, path: str, deadline: float) -> tuple[int, bytes]:
        """Returns the status and the body of an answer. Raises OSError, HTTPException, Unavailable."""
        seconds = deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError
        with _connection(url, self._access.tls, seconds) as connection:
            connection.request("GET", url.path + path, headers=self._access.headers())
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise Unavailable(
                    UNSUPPORTED_SCHEMA, f"the schema is larger than {ANSWER_BYTES_MAX} bytes"
                )
            if answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            return answer.status, body


@contextmanager
def _connection(
    url: SplitResult, tls: ssl.SSLContext | None, seconds: float
) -> Iterator[http.client.HTTPConnection]:
    """Yields a connection, which is cut off after so many seconds. Raises OSError."""
    assert url.hostname is not None
    connect = min(CONNECT_SECONDS_MAX, seconds)
    if url.scheme == "https":
        context = tls or ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=connect, context=context
        )
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=connect)
    is_late = threading.Event()
    # A time-out of the socket begins again with each byte.
    timer = threading.Timer(seconds, _cut, (connection, is_late))
    timer.daemon = True
    try:
        connection.connect()
        connection.sock.settimeout(seconds)
        timer.start()
        yield connection
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        connection.close()


def _cut(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    is_late.set()
    # The plain socket's: that of TLS would forget its session while another thread reads.
    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _said(reference: Reference) -> str:
    return f"version {reference.version} of the subject {reference.subject[:100]}"


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it does not answer within {SECONDS_MAX:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}: check schema.registry.ssl.truststore.location"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"it answers no HTTP ({type(error).__name__})"
