"""What a fenced broker serves: the one table of its decisions, an API each.

It serves what only reads, so that a standby can catch up with all that was acknowledged, and the changes
of its own properties, so that the fence can be lifted. Everything else gets an error code that clients
of that API retry, after they have looked for the leader, the coordinator or the controller again.

Source: Apache Kafka, the clients' handlers of each answer: TransactionManager.java, Sender.java,
ConsumerCoordinator.java, KafkaAdminClient.java and admin/internals.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode

SERVED = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        # Its handler creates no topic.
        ApiKey.METADATA,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        # Of these two, their handlers serve the changes of this broker's own properties.
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)

_OF_LEADERS = ErrorCode.NOT_LEADER_OR_FOLLOWER
_OF_COORDINATORS = ErrorCode.NOT_COORDINATOR
OF_CONTROLLERS = ErrorCode.NOT_CONTROLLER

REFUSED: Mapping[ApiKey, ErrorCode] = {
    ApiKey.PRODUCE: _OF_LEADERS,
    ApiKey.DELETE_RECORDS: _OF_LEADERS,
    ApiKey.WRITE_TXN_MARKERS: _OF_LEADERS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ErrorCode.REPLICA_NOT_AVAILABLE,
    # What comes before a coordinator is known, or is asked of each broker.
    ApiKey.FIND_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiKey.LIST_GROUPS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiKey.LIST_TRANSACTIONS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Not NOT_COORDINATOR: Java's idempotent producer would look for the coordinator of no id.
    ApiKey.INIT_PRODUCER_ID: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ApiKey.OFFSET_COMMIT: _OF_COORDINATORS,
    ApiKey.OFFSET_FETCH: _OF_COORDINATORS,
    ApiKey.JOIN_GROUP: _OF_COORDINATORS,
    ApiKey.HEARTBEAT: _OF_COORDINATORS,
    ApiKey.LEAVE_GROUP: _OF_COORDINATORS,
    ApiKey.SYNC_GROUP: _OF_COORDINATORS,
    ApiKey.DESCRIBE_GROUPS: _OF_COORDINATORS,
    ApiKey.DELETE_GROUPS: _OF_COORDINATORS,
    ApiKey.OFFSET_DELETE: _OF_COORDINATORS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _OF_COORDINATORS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _OF_COORDINATORS,
    ApiKey.ADD_PARTITIONS_TO_TXN: _OF_COORDINATORS,
    ApiKey.ADD_OFFSETS_TO_TXN: _OF_COORDINATORS,
    ApiKey.END_TXN: _OF_COORDINATORS,
    ApiKey.TXN_OFFSET_COMMIT: _OF_COORDINATORS,
    ApiKey.DESCRIBE_TRANSACTIONS: _OF_COORDINATORS,
    ApiKey.CREATE_TOPICS: OF_CONTROLLERS,
    ApiKey.DELETE_TOPICS: OF_CONTROLLERS,
    ApiKey.CREATE_PARTITIONS: OF_CONTROLLERS,
    ApiKey.CREATE_ACLS: OF_CONTROLLERS,
    ApiKey.DELETE_ACLS: OF_CONTROLLERS,
    ApiKey.CREATE_DELEGATION_TOKEN: OF_CONTROLLERS,
    ApiKey.RENEW_DELEGATION_TOKEN: OF_CONTROLLERS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: OF_CONTROLLERS,
    ApiKey.ELECT_LEADERS: OF_CONTROLLERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: OF_CONTROLLERS,
    ApiKey.ALTER_CLIENT_QUOTAS: OF_CONTROLLERS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: OF_CONTROLLERS,
    ApiKey.UPDATE_FEATURES: OF_CONTROLLERS,
}
"""The error code of each API that a fenced broker does not serve."""
