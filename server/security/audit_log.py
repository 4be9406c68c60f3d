"""Logs who was refused, and who changed what: one JSON object a line.

    {"time":"2026-11-23T09:00:00.123Z","event":"changed","principal":"User:alice","host":"10.0.0.7",
     "listener":"SASL_SSL","client":"kafka-python-2.1","api":"DeleteTopics",
     "results":[{"resource":"Topic:orders","result":"NONE"}]}

    event      further members
    denied     api, operation, resource, rule: the ACL or the setting that decided
    refused    mechanism, user: the name that the client claimed, reason
    changed    api, results: at most 100; more: true if there were others

The api of an HTTP request is its method and route, and its client is null.

The lines go to the logger `server.audit`. `server/security/audit_file.py` writes them to a file. No line
has a value of a property, a password or a token: only names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from protocol.wire.error_codes import ErrorCode
from protocol.wire.request import RequestHeader
from protocol.wire.schema import Message
from server.config.listeners.addresses import Address
from server.security.audited_changes import AUDITED, RESULTS_MAX, Changed
from server.security.principal import Principal
from storage.threads import loop_thread

LOGGER = "server.audit"
TEXT_CHARACTERS_MAX = 300
"""Names come from clients, so longer ones are cut."""

_log = logging.getLogger(LOGGER)


class Peer(Protocol):
    """The connection that a line is about."""

    @property
    def principal(self) -> Principal: ...
    @property
    def client_host(self) -> str: ...
    @property
    def endpoint(self) -> Address: ...


@loop_thread
class AuditLog:
    """Formats the lines."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` returns the time in milliseconds since the epoch."""
        self._now_ms = now_ms

    def denied(
        self,
        peer: Peer,
        header: RequestHeader | None,
        *,
        api: str,
        operation: str,
        resource: str,
        rule: str,
    ) -> None:
        """Log that a principal may not do what it requested."""
        self._write(
            peer, "denied", header, api=api, operation=operation, resource=resource, rule=rule
        )

    def refused(self, peer: Peer, *, mechanism: str, user: str, reason: str) -> None:
        """Log that a client could not prove who it is."""
        self._write(peer, "refused", None, mechanism=mechanism, user=user, reason=reason)

    def completed(
        self, peer: Peer, header: RequestHeader, request: Message, response: Message
    ) -> None:
        """Log a request that was answered, if it is one that changes something."""
        audited = AUDITED.get(header.api_key)
        if audited is None or getattr(request, "validate_only", False):
            return
        changes = iter(audited.changes_of(request, response))
        results = [_result_of(each) for each in islice(changes, RESULTS_MAX)]
        more = {"more": True} if next(changes, None) is not None else {}
        self._write(peer, "changed", header, api=audited.api, results=results, **more)

    def changed(self, peer: Peer, *, api: str, resource: str, result: str) -> None:
        """Log an HTTP request that changes something and was answered."""
        results = [{"resource": resource, "result": result}]
        self._write(peer, "changed", None, api=api, results=results)

    def _write(self, peer: Peer, event: str, header: RequestHeader | None, **members: Any) -> None:
        line = {
            "time": _time(self._now_ms()),
            "event": event,
            "principal": str(peer.principal),
            "host": peer.client_host,
            "listener": peer.endpoint.name,
            "client": header.client_id if header is not None else None,
            **members,
        }
        _log.info("%s", json.dumps(_cut(line), ensure_ascii=False, separators=(",", ":")))


def _result_of(changed: Changed) -> dict[str, Any]:
    result: dict[str, Any] = {
        "resource": changed.resource,
        "result": ErrorCode(changed.error_code).name,
    }
    if changed.properties:
        result["properties"] = list(islice(changed.properties, RESULTS_MAX))
    return result


def _cut(value: Any) -> Any:
    """Returns a JSON value whose texts have at most TEXT_CHARACTERS_MAX characters."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS_MAX else f"{value[:TEXT_CHARACTERS_MAX]}..."
    if isinstance(value, dict):
        return {name: _cut(member) for name, member in value.items()}
    if isinstance(value, Iterable):
        return [_cut(element) for element in value]
    return value


def _time(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"
