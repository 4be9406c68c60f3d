"""The operations that a client may perform: without an authorizer, all that exist.

Answers carry them as bits (KIP-430). Source: Apache Kafka, AclOperation.java, AclEntry.java
`supportedOperations`.
"""

from __future__ import annotations

import enum


class Operation(enum.IntEnum):
    """An operation on a resource. On the wire, as the number of a bit: values never change."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


NOT_REQUESTED = -(2**31)
"""The value for a client that did not request the operations."""

_ON_TOPIC = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_ON_CLUSTER = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
_ON_GROUP = _bits(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def on_topic(*, is_asked: bool = True) -> int:
    """Returns the operations on a topic."""
    return _ON_TOPIC if is_asked else NOT_REQUESTED


def on_cluster(*, is_asked: bool = True) -> int:
    """Returns the operations on the cluster."""
    return _ON_CLUSTER if is_asked else NOT_REQUESTED


def on_group(*, is_asked: bool = True) -> int:
    """Returns the operations on a group."""
    return _ON_GROUP if is_asked else NOT_REQUESTED
