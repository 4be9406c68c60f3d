"""What each API checks before it does something: the one table of authorization.

The dispatcher carries out the rules that refuse a whole request. The handlers carry out the others, as
they know the elements of their requests. The tests walk the table: an API without an entry fails, and so
does a handler that needs more, or less, than its rules say.

Source: Apache Kafka, KafkaApis.scala, ControllerApis.scala, AclApis.scala; docs/security.html,
"Operations and Resources on Protocols".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from server.security.acls import Operation, ResourceType

CLUSTER = ResourceType.CLUSTER
GROUP = ResourceType.GROUP
TOPIC = ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


class Scope(enum.Enum):
    """What a missing permission affects."""

    REQUEST = "the whole request is refused, by the dispatcher"
    ANSWER = "the whole request is refused, by the handler"
    ELEMENT = "the element of the answer for the resource carries the error"
    HIDDEN = "the resource is left out of the answer"


REFUSALS: Mapping[ResourceType, tuple[ErrorCode, str]] = {
    TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""The error code and Kafka's text for a missing permission, by the type of the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A permission that an API needs."""

    kind: ResourceType
    any_of: tuple[Operation, ...]
    """The operations of which one suffices."""
    scope: Scope
    field: str = ""
    """For `Scope.REQUEST`: the request's field with the resource's name; null checks nothing."""
    since: int = 0
    until: int = 1 << 15
    """The first and the last version that the rule is about."""
    or_on_cluster: tuple[Operation, ...] = ()
    """Operations of which one on the cluster makes the rule unnecessary."""

    @property
    def error_code(self) -> ErrorCode:
        return REFUSALS[self.kind][0]


def _request(kind: ResourceType, *any_of: Operation, field: str = "", since: int = 0) -> Rule:
    return Rule(kind=kind, any_of=any_of, scope=Scope.REQUEST, field=field, since=since)


def _element(kind: ResourceType, operation: Operation, *or_on_cluster: Operation) -> Rule:
    return Rule(kind=kind, any_of=(operation,), scope=Scope.ELEMENT, or_on_cluster=or_on_cluster)


def _hidden(kind: ResourceType, operation: Operation, *or_on_cluster: Operation) -> Rule:
    return Rule(kind=kind, any_of=(operation,), scope=Scope.HIDDEN, or_on_cluster=or_on_cluster)


_OF_GROUP_MEMBERS = (_request(GROUP, Operation.READ, field="group_id"),)
_ON_CLUSTER = {
    operation: (_request(CLUSTER, operation),)
    for operation in (
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
    )
}
_DESCRIBE_CONFIGS = tuple(
    _element(kind, Operation.DESCRIBE_CONFIGS) for kind in (TOPIC, GROUP, CLUSTER)
)
_ALTER_CONFIGS = tuple(_element(kind, Operation.ALTER_CONFIGS) for kind in (TOPIC, GROUP, CLUSTER))
NOTHING: tuple[Rule, ...] = ()
"""APIs that every client may use: they come before authentication, or the broker refuses them anyway."""

API_RULES: Mapping[ApiKey, tuple[Rule, ...]] = {
    ApiKey.PRODUCE: (
        _request(TRANSACTIONAL_ID, Operation.WRITE, field="transactional_id"),
        _element(TOPIC, Operation.WRITE),
    ),
    ApiKey.FETCH: (_element(TOPIC, Operation.READ),),
    ApiKey.LIST_OFFSETS: (_element(TOPIC, Operation.DESCRIBE),),
    # Named topics get the error; of "all topics" those that the client may not describe are left out. A
    # topic that would be created needs CREATE besides.
    ApiKey.METADATA: (
        _element(TOPIC, Operation.DESCRIBE),
        _element(TOPIC, Operation.CREATE, Operation.CREATE),
    ),
    ApiKey.OFFSET_COMMIT: (*_OF_GROUP_MEMBERS, _element(TOPIC, Operation.READ)),
    # Of "all topics" those that the client may not describe are left out.
    ApiKey.OFFSET_FETCH: (
        _element(GROUP, Operation.DESCRIBE),
        _element(TOPIC, Operation.DESCRIBE),
    ),
    ApiKey.FIND_COORDINATOR: (
        _element(GROUP, Operation.DESCRIBE),
        _element(TRANSACTIONAL_ID, Operation.DESCRIBE),
    ),
    ApiKey.JOIN_GROUP: _OF_GROUP_MEMBERS,
    ApiKey.HEARTBEAT: _OF_GROUP_MEMBERS,
    ApiKey.LEAVE_GROUP: _OF_GROUP_MEMBERS,
    ApiKey.SYNC_GROUP: _OF_GROUP_MEMBERS,
    ApiKey.DESCRIBE_GROUPS: (_element(GROUP, Operation.DESCRIBE),),
    ApiKey.LIST_GROUPS: (_hidden(GROUP, Operation.DESCRIBE, Operation.DESCRIBE),),
    ApiKey.SASL_HANDSHAKE: NOTHING,
    ApiKey.API_VERSIONS: NOTHING,
    # The properties of a created topic are shown to clients with DESCRIBE_CONFIGS on it.
    ApiKey.CREATE_TOPICS: (
        _element(TOPIC, Operation.CREATE, Operation.CREATE),
        Rule(kind=TOPIC, any_of=(Operation.DESCRIBE_CONFIGS,), scope=Scope.HIDDEN, since=5),
    ),
    # A topic given by its name needs DESCRIBE, too; one given by its id is named to clients with it.
    ApiKey.DELETE_TOPICS: (
        _element(TOPIC, Operation.DESCRIBE, Operation.DELETE),
        _element(TOPIC, Operation.DELETE, Operation.DELETE),
    ),
    ApiKey.DELETE_RECORDS: (_element(TOPIC, Operation.DELETE),),
    # WRITE on any topic is enough for a producer without transactions (KIP-679).
    ApiKey.INIT_PRODUCER_ID: (
        _request(TRANSACTIONAL_ID, Operation.WRITE, field="transactional_id"),
        Rule(kind=CLUSTER, any_of=(Operation.IDEMPOTENT_WRITE,), scope=Scope.ANSWER),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _element(TOPIC, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
    ),
    # From v4 on only brokers send it.
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _request(CLUSTER, Operation.CLUSTER_ACTION, since=4),
        Rule(
            kind=TRANSACTIONAL_ID,
            any_of=(Operation.WRITE,),
            scope=Scope.REQUEST,
            field="v3_and_below_transactional_id",
            until=3,
        ),
        Rule(kind=TOPIC, any_of=(Operation.WRITE,), scope=Scope.ELEMENT, until=3),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        _request(TRANSACTIONAL_ID, Operation.WRITE, field="transactional_id"),
        _request(GROUP, Operation.READ, field="group_id"),
    ),
    ApiKey.END_TXN: (_request(TRANSACTIONAL_ID, Operation.WRITE, field="transactional_id"),),
    ApiKey.WRITE_TXN_MARKERS: (_request(CLUSTER, Operation.ALTER, Operation.CLUSTER_ACTION),),
    ApiKey.TXN_OFFSET_COMMIT: (
        _request(TRANSACTIONAL_ID, Operation.WRITE, field="transactional_id"),
        _request(GROUP, Operation.READ, field="group_id"),
        _element(TOPIC, Operation.READ),
    ),
    ApiKey.DESCRIBE_ACLS: _ON_CLUSTER[Operation.DESCRIBE],
    ApiKey.CREATE_ACLS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.DELETE_ACLS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.DESCRIBE_CONFIGS: _DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.DESCRIBE_LOG_DIRS: _ON_CLUSTER[Operation.DESCRIBE],
    ApiKey.SASL_AUTHENTICATE: NOTHING,
    ApiKey.CREATE_PARTITIONS: (_element(TOPIC, Operation.ALTER),),
    ApiKey.CREATE_DELEGATION_TOKEN: NOTHING,
    ApiKey.RENEW_DELEGATION_TOKEN: NOTHING,
    ApiKey.EXPIRE_DELEGATION_TOKEN: NOTHING,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: NOTHING,
    ApiKey.DELETE_GROUPS: (_element(GROUP, Operation.DELETE),),
    ApiKey.ELECT_LEADERS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _ON_CLUSTER[Operation.DESCRIBE],
    ApiKey.OFFSET_DELETE: (
        _request(GROUP, Operation.DELETE, field="group_id"),
        _element(TOPIC, Operation.READ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _ON_CLUSTER[Operation.DESCRIBE_CONFIGS],
    ApiKey.ALTER_CLIENT_QUOTAS: _ON_CLUSTER[Operation.ALTER_CONFIGS],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _ON_CLUSTER[Operation.DESCRIBE],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ON_CLUSTER[Operation.ALTER],
    ApiKey.DESCRIBE_QUORUM: _ON_CLUSTER[Operation.DESCRIBE],
    ApiKey.UPDATE_FEATURES: _ON_CLUSTER[Operation.ALTER],
    ApiKey.FETCH_SNAPSHOT: (_request(CLUSTER, Operation.CLUSTER_ACTION),),
    # Every client may see the brokers; what it may do with the cluster is computed for it.
    ApiKey.DESCRIBE_CLUSTER: NOTHING,
    ApiKey.DESCRIBE_PRODUCERS: (_element(TOPIC, Operation.READ),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _element(TRANSACTIONAL_ID, Operation.DESCRIBE),
        _hidden(TOPIC, Operation.DESCRIBE),
    ),
    ApiKey.LIST_TRANSACTIONS: (_hidden(TRANSACTIONAL_ID, Operation.DESCRIBE),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        *_OF_GROUP_MEMBERS,
        Rule(kind=TOPIC, any_of=(Operation.DESCRIBE,), scope=Scope.ANSWER),
    ),
    # A group with a topic that the client may not describe gets the error, and shows no member.
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _element(GROUP, Operation.DESCRIBE),
        _element(TOPIC, Operation.DESCRIBE),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _ON_CLUSTER[Operation.DESCRIBE_CONFIGS],
    # Named topics get the error; of "all topics" those that the client may not describe are left out.
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_element(TOPIC, Operation.DESCRIBE),),
}
"""The rules of each API, in the order in which they are checked."""

REQUEST_RULES: Mapping[ApiKey, tuple[Rule, ...]] = {
    key: found
    for key, rules in API_RULES.items()
    if (found := tuple(rule for rule in rules if rule.scope is Scope.REQUEST))
}
"""The rules that the dispatcher carries out."""
