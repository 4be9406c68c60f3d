"""What a handler gets besides its request: the broker, the connection, what the client may do.

Also the one place that turns an exception into the error code that a client gets.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from protocol.wire.api_keys import APIS
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.wire.request import RequestHeader
from server.net.connection import Connection
from server.net.quota_usage import QuotaUsage
from server.runtime.turns import Pace
from server.security.acls import CLUSTER_NAME, Operation, ResourceType
from server.security.allowed_operations import ALL, NOT_REQUESTED, allowed_bits
from server.security.authorizer import Authorizer, Decision
from server.topics.topic import TopicRefused
from storage.files.errors import StorageError
from storage.formats.config_property import ConfigError
from storage.log.log import PartitionLog

if TYPE_CHECKING:
    from server.broker import Broker

NAME_SHOWN_MAX = 100
"""How many characters of a resource's name a log line shows."""

DENIALS_MAX = 100
"""How many denials of a request the audit log lists; a request may name 100,000 topics."""

ANY_EPOCH = -1
"""The client does not know the leader epoch, or does not want it checked."""


class RequestContext:
    """The broker, connection, header and pace of a request, for its handler."""

    __slots__ = ("_began_s", "_denials", "broker", "connection", "header", "pace", "usage")

    def __init__(
        self, broker: Broker, header: RequestHeader, connection: Connection, pace: Pace
    ) -> None:
        self.broker = broker
        self.header = header
        self.connection = connection
        self._began_s = time.perf_counter()
        # State: the permissions that the client lacked so far
        self._denials = 0
        self.pace = pace
        """Paces loops over elements whose number the client chooses."""
        self.usage: QuotaUsage | None = None
        """What the request uses of its client's quotas; None if there are no quotas."""

    def deadline_s(self, timeout_ms: int) -> float:
        """Returns when the request times out, in seconds on the loop's clock."""
        passed_s = time.perf_counter() - self._began_s
        return asyncio.get_running_loop().time() + timeout_ms / 1000 - passed_s

    def may(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        quiet: bool = False,
    ) -> bool:
        """Returns whether the client may perform an operation on a resource.

        Args:
            kind, name: the resource; CLUSTER has only one.
            quiet: do not log a refusal, because the client has not named the resource.
        """
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        if kind is ResourceType.TOPIC:
            name = self.broker.readable_topics.resource_of(name)
        return self._is_allowed(authorizer, operation, kind, name, quiet)

    def operations_on(
        self, kind: ResourceType, name: str = CLUSTER_NAME, *, is_asked: bool = True
    ) -> int:
        """Returns what the client may do with a resource, as bits (KIP-430).

        Args:
            is_asked: whether the client requested it; if not, the value says so.
        """
        if not is_asked:
            return NOT_REQUESTED
        if self.broker.authorizer is None:
            return ALL[kind]
        return allowed_bits(kind, lambda each: self.may(each, kind, name, quiet=True))

    def operations_on_cluster(self, *, is_asked: bool) -> int:
        """Returns what the client may do with the cluster; nothing if it may not describe it."""
        if is_asked and not self.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self.operations_on(ResourceType.CLUSTER, is_asked=is_asked)

    def may_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Returns whether the client may perform an operation on some resource of a type (KIP-679)."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        connection = self.connection
        return authorizer.decide_on_any(
            connection.principal, connection.client_host, operation, kind
        ).is_allowed

    def _is_allowed(
        self,
        authorizer: Authorizer,
        operation: Operation,
        kind: ResourceType,
        name: str,
        quiet: bool,
    ) -> bool:
        connection = self.connection
        decision = authorizer.decide(
            connection.principal, connection.client_host, operation, kind, name
        )
        if not decision.is_allowed and not quiet:
            self._log_denial(decision, operation, kind, name)
        return decision.is_allowed

    def _log_denial(
        self, decision: Decision, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        connection = self.connection
        text = f"{connection.principal} may not {operation.name} {kind.name}"
        self.broker.warnings.say(connection, text, f" {name[:NAME_SHOWN_MAX]!r}: {decision}")
        self._denials += 1
        if self._denials <= DENIALS_MAX:
            self.broker.audit.denied(
                connection,
                self.header,
                api=APIS[self.header.api_key].name,
                operation=operation.name,
                resource=f"{kind.title}:{name}",
                rule=str(decision),
            )

    def log_of(
        self, topic_name: str, partition: int, leader_epoch: int = ANY_EPOCH
    ) -> PartitionLog | ErrorCode:
        """Returns the log of a partition, or the error code if it cannot be served.

        Args:
            leader_epoch: the epoch that the client expects. An older one than the log's means that
                the client's metadata are stale, a newer one that ours are (KIP-320).
        """
        topic = self.broker.topics.get(topic_name)
        if topic is None:
            is_readable = self.broker.readable_topics.get(topic_name) is not None
            # Clients ask again and again for a topic that is unknown.
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION
                if is_readable
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return self._expected(topic.partition(partition), leader_epoch)

    def readable_log_of(
        self, topic_name: str, partition: int, leader_epoch: int = ANY_EPOCH
    ) -> PartitionLog | ErrorCode:
        """Returns the log of a partition, for a request that only reads: also that of a view.

        Args:
            leader_epoch: see `log_of`.
        """
        topic = self.broker.readable_topics.get(topic_name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._expected(topic.partition(partition), leader_epoch)

    def _expected(
        self, log: PartitionLog | ErrorCode, leader_epoch: int
    ) -> PartitionLog | ErrorCode:
        """Returns the log if the client expects its epoch."""
        if isinstance(log, ErrorCode):
            return log
        if leader_epoch != ANY_EPOCH and leader_epoch != log.leader_epoch:
            is_old = leader_epoch < log.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return log

    def admit_mutations(self, count: int, *, is_strict: bool) -> TopicRefused | None:
        """Count partitions that are created or deleted. Returns why the client's quota forbids it.

        Args:
            is_strict: whether the request's version knows THROTTLING_QUOTA_EXCEEDED (KIP-599).
        """
        if self.usage is None:
            return None
        return self.usage.charge_mutations(count, is_strict=is_strict)

    def log_failure(self, error: StorageError) -> ErrorCode:
        """Log the failure of a partition's disk or log. Returns its error code for the client."""
        self.broker.warnings.say(self.connection, str(error))
        return error_code_of(error)


def error_code_of(error: Exception) -> ErrorCode:
    """Returns the error code that a client gets for an exception. Only this function decides it."""
    match error:
        case CorruptBatch():
            return ErrorCode.CORRUPT_MESSAGE
        case InvalidRecord() | UnsupportedMagic():
            return ErrorCode.INVALID_RECORD
        case UnsupportedCodec():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        case DecompressionTooLarge():
            return ErrorCode.MESSAGE_TOO_LARGE
        case ConfigError():
            return ErrorCode.INVALID_CONFIG
        case StorageError():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
