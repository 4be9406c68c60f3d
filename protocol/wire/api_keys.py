"""The table of the APIs that this broker serves: keys, names, versions and message classes.

Everything else derives from it: the version gate, the answer to ApiVersions, and, by the key, the
handlers of `server/dispatch.py`. The lowest versions matter: librdkafka turns features on by exact
versions, so the broker advertises some that no current client uses.

Message classes are imported at their first use.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
from types import ModuleType

from protocol.wire.schema import NEVER, Message


class ApiKey(enum.IntEnum):
    """Kafka's number of each served API. On the wire: values never change."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API. ApiVersions advertises `version_min` to `version_max`."""

    key: ApiKey
    name: str
    """Kafka's name, such as ListOffsets."""
    version_min: int
    version_max: int
    served_min: int
    """First version that is answered; lower versions, down to `version_min`, are only advertised."""
    flexible_since: int
    """First version with compact lengths, tagged fields and the matching headers."""

    def serves(self, version: int) -> bool:
        return self.served_min <= version <= self.version_max

    @property
    def request_type(self) -> type[Message]:
        return _message_type(self.key, f"{self.name}Request")

    @property
    def response_type(self) -> type[Message]:
        return _message_type(self.key, f"{self.name}Response")


def _api(
    key: ApiKey, versions: tuple[int, int], *, flexible_since: int, served_min: int | None = None
) -> Api:
    low, high = versions
    return Api(
        key=key,
        name=key.name.title().replace("_", ""),
        version_min=low,
        version_max=high,
        served_min=low if served_min is None else served_min,
        flexible_since=flexible_since,
    )


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        # Produce 0-2 are advertised and refused, as by Kafka 4: without them librdkafka before
        # 2.11.1 sends its batches uncompressed (KAFKA-18659).
        _api(ApiKey.PRODUCE, (0, 13), flexible_since=9, served_min=3),
        _api(ApiKey.FETCH, (4, 18), flexible_since=12),
        _api(ApiKey.LIST_OFFSETS, (1, 11), flexible_since=6),
        _api(ApiKey.METADATA, (0, 13), flexible_since=9),
        _api(ApiKey.OFFSET_COMMIT, (2, 10), flexible_since=8),
        _api(ApiKey.OFFSET_FETCH, (1, 10), flexible_since=6),
        # librdkafka before 2.11.1 uses LZ4 only if FindCoordinator 0 is advertised.
        _api(ApiKey.FIND_COORDINATOR, (0, 6), flexible_since=3),
        _api(ApiKey.JOIN_GROUP, (0, 9), flexible_since=6),
        _api(ApiKey.HEARTBEAT, (0, 4), flexible_since=4),
        _api(ApiKey.LEAVE_GROUP, (0, 5), flexible_since=4),
        _api(ApiKey.SYNC_GROUP, (0, 5), flexible_since=4),
        _api(ApiKey.DESCRIBE_GROUPS, (0, 6), flexible_since=5),
        _api(ApiKey.LIST_GROUPS, (0, 5), flexible_since=3),
        _api(ApiKey.SASL_HANDSHAKE, (0, 1), flexible_since=NEVER),
        _api(ApiKey.API_VERSIONS, (0, 4), flexible_since=3),
        _api(ApiKey.CREATE_TOPICS, (2, 7), flexible_since=5),
        _api(ApiKey.DELETE_TOPICS, (1, 6), flexible_since=4),
        _api(ApiKey.DELETE_RECORDS, (0, 2), flexible_since=2),
        _api(ApiKey.INIT_PRODUCER_ID, (0, 5), flexible_since=2),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), flexible_since=4),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), flexible_since=3),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), flexible_since=3),
        _api(ApiKey.END_TXN, (0, 5), flexible_since=3),
        _api(ApiKey.WRITE_TXN_MARKERS, (1, 1), flexible_since=1),
        _api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), flexible_since=3),
        _api(ApiKey.DESCRIBE_ACLS, (1, 3), flexible_since=2),
        _api(ApiKey.CREATE_ACLS, (1, 3), flexible_since=2),
        _api(ApiKey.DELETE_ACLS, (1, 3), flexible_since=2),
        _api(ApiKey.DESCRIBE_CONFIGS, (1, 4), flexible_since=4),
        _api(ApiKey.ALTER_CONFIGS, (0, 2), flexible_since=2),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), flexible_since=2),
        _api(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), flexible_since=2),
        _api(ApiKey.SASL_AUTHENTICATE, (0, 2), flexible_since=2),
        _api(ApiKey.CREATE_PARTITIONS, (0, 3), flexible_since=2),
        _api(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), flexible_since=2),
        _api(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), flexible_since=2),
        _api(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), flexible_since=2),
        _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), flexible_since=2),
        _api(ApiKey.DELETE_GROUPS, (0, 2), flexible_since=2),
        _api(ApiKey.ELECT_LEADERS, (0, 2), flexible_since=2),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), flexible_since=1),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), flexible_since=0),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), flexible_since=0),
        _api(ApiKey.OFFSET_DELETE, (0, 0), flexible_since=NEVER),
        _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), flexible_since=1),
        _api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), flexible_since=1),
        _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), flexible_since=0),
        _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), flexible_since=0),
        _api(ApiKey.DESCRIBE_QUORUM, (0, 2), flexible_since=0),
        _api(ApiKey.UPDATE_FEATURES, (0, 2), flexible_since=0),
        _api(ApiKey.FETCH_SNAPSHOT, (0, 1), flexible_since=0),
        _api(ApiKey.DESCRIBE_CLUSTER, (0, 2), flexible_since=0),
        _api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), flexible_since=0),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), flexible_since=0),
        _api(ApiKey.LIST_TRANSACTIONS, (0, 1), flexible_since=0),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), flexible_since=0),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), flexible_since=0),
        _api(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), flexible_since=0),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), flexible_since=0),
    )
}
"""By API key, in the order of the keys."""


INTERNAL_APIS = frozenset({ApiKey.FETCH_SNAPSHOT})
"""What only the internal listener advertises: Kafka's brokers do not serve it, only its controllers."""


@functools.cache
def _message_type(key: ApiKey, class_name: str) -> type[Message]:
    module: ModuleType = importlib.import_module(f"protocol.messages.{key.name.lower()}")
    message_type: type[Message] = getattr(module, class_name)
    return message_type
