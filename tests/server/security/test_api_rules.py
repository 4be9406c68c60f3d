"""Every API over a real socket, with every permission missing in turn: the rules are what happens.

For each API and its oldest and newest version: without ACLs, with just the permissions of its rules,
with each of them denied in turn while all others are allowed, and as a super user. Where a permission
is missing, the right error stands in the right place and nothing has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    ResourceType,
)
from server.security.api_rules import API_RULES, REFUSALS, Rule, Scope
from tests.harness.authorization_requests import (
    GROUP,
    REQUESTS,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.harness.authorization_world import World, values_in
from tests.harness.authorized_broker import (
    SUPER,
    allow,
    authorizing_broker,
    connect_as,
    deny,
)

REFUSED = {code for code, _ in REFUSALS.values()}
KINDS = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ANY_NAME = dict.fromkeys(KINDS, "*") | {ResourceType.CLUSTER: CLUSTER_NAME}
EVERYTHING = [allow(kind, ANY_NAME[kind], Operation.ALL) for kind in KINDS]

TOP = "error_code"
TOPICS = "topics.error_code"
PARTITIONS = "topics.partitions.error_code"
PLACES: dict[ApiKey, dict[ResourceType, set[str]]] = {
    ApiKey.PRODUCE: {
        kind: {"responses.partition_responses.error_code"}
        for kind in (ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC)
    },
    ApiKey.FETCH: {ResourceType.TOPIC: {"responses.partitions.error_code"}},
    ApiKey.ALTER_CLIENT_QUOTAS: {ResourceType.CLUSTER: {"entries.error_code"}},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {ResourceType.CLUSTER: {"results.error_code"}},
    ApiKey.LIST_OFFSETS: {ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.METADATA: {ResourceType.TOPIC: {TOPICS}},
    ApiKey.OFFSET_COMMIT: {ResourceType.GROUP: {PARTITIONS}, ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.OFFSET_FETCH: {
        ResourceType.GROUP: {TOP, PARTITIONS, "groups.error_code"}
        | {"groups.topics.partitions.error_code"},
        ResourceType.TOPIC: {PARTITIONS, "groups.topics.partitions.error_code"},
    },
    ApiKey.FIND_COORDINATOR: {
        kind: {TOP, "coordinators.error_code"}
        for kind in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    },
    ApiKey.DESCRIBE_GROUPS: {ResourceType.GROUP: {"groups.error_code"}},
    ApiKey.CREATE_TOPICS: {ResourceType.TOPIC: {TOPICS}},
    ApiKey.DELETE_TOPICS: {ResourceType.TOPIC: {"responses.error_code"}},
    ApiKey.DELETE_RECORDS: {ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        ResourceType.CLUSTER: {TOP},
        **{
            kind: {"results_by_topic_v3_and_below.results_by_partition.partition_error_code"}
            for kind in (ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC)
        },
    },
    ApiKey.WRITE_TXN_MARKERS: {ResourceType.CLUSTER: {"markers.topics.partitions.error_code"}},
    ApiKey.TXN_OFFSET_COMMIT: {
        kind: {PARTITIONS}
        for kind in (ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP, ResourceType.TOPIC)
    },
    ApiKey.CREATE_ACLS: {ResourceType.CLUSTER: {"results.error_code"}},
    ApiKey.DELETE_ACLS: {ResourceType.CLUSTER: {"filter_results.error_code"}},
    ApiKey.DESCRIBE_CONFIGS: {
        kind: {"results.error_code"}
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
    },
    **{
        key: {
            kind: {"responses.error_code"}
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
        }
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    },
    ApiKey.ALTER_REPLICA_LOG_DIRS: {ResourceType.CLUSTER: {"results.partitions.error_code"}},
    ApiKey.DESCRIBE_LOG_DIRS: {ResourceType.CLUSTER: {TOP}},
    ApiKey.CREATE_PARTITIONS: {ResourceType.TOPIC: {"results.error_code"}},
    ApiKey.DELETE_GROUPS: {ResourceType.GROUP: {"results.error_code"}},
    ApiKey.OFFSET_DELETE: {ResourceType.GROUP: {TOP}, ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.DESCRIBE_PRODUCERS: {ResourceType.TOPIC: {PARTITIONS}},
    ApiKey.DESCRIBE_TRANSACTIONS: {
        ResourceType.TRANSACTIONAL_ID: {"transaction_states.error_code"}
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        kind: {"groups.error_code"} for kind in (ResourceType.GROUP, ResourceType.TOPIC)
    },
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {ResourceType.TOPIC: {TOPICS}},
    ApiKey.ELECT_LEADERS: {
        ResourceType.CLUSTER: {TOP, "replica_election_results.partition_result.error_code"}
    },
}
"""Where the errors stand, by API and type of resource; for the others, in the top-level error code."""

HIDING: dict[ApiKey, tuple[str, object]] = {
    ApiKey.LIST_GROUPS: ("groups.group_id", GROUP),
    ApiKey.CREATE_TOPICS: ("topics.topic_config_error_code", ErrorCode.NONE),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transaction_states.topics.topic", TOPIC),
    ApiKey.LIST_TRANSACTIONS: ("transaction_states.transactional_id", TRANSACTIONAL_ID),
}
"""What only clients with the permissions of the rules of `Scope.HIDDEN` see: a field and its value."""

CHANGING = {
    ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE, ApiKey.DELETE_RECORDS, ApiKey.CONSUMER_GROUP_HEARTBEAT,
}  # fmt: skip
"""APIs whose request changes something if it is allowed: then a refusal that changes nothing is one."""


def refusals_in(response: Message) -> set[tuple[str, object]]:
    """Returns the authorization errors in an answer, with their places."""
    return {
        (path, value)
        for path, value in values_in(response)
        if path.endswith("error_code") and value in REFUSED and "config_error" not in path
    }


def in_force(key: ApiKey, version: int) -> list[Rule]:
    return [rule for rule in API_RULES[key] if rule.since <= version <= rule.until]


def granting(rule: Rule, operation: Operation) -> Acl:
    return allow(rule.kind, ANY_NAME[rule.kind], operation)


def denying(rule: Rule) -> list[Acl]:
    """Returns ACLs that deny every way to satisfy a rule."""
    denied = [deny(rule.kind, ANY_NAME[rule.kind], each) for each in rule.any_of]
    denied += [deny(ResourceType.CLUSTER, CLUSTER_NAME, each) for each in rule.or_on_cluster]
    if Operation.IDEMPOTENT_WRITE in rule.any_of:
        # WRITE on any topic would do, too.
        denied.append(deny(ResourceType.TOPIC, "*", Operation.WRITE))
    return denied


def places_of(key: ApiKey, kind: ResourceType) -> set[str]:
    return PLACES.get(key, {}).get(kind, {TOP})


def assert_refused(key: ApiKey, rule: Rule, answer: Message) -> None:
    """Assert that the answer has the rule's error and no other, where it belongs."""
    found = refusals_in(answer)
    if isinstance(answer, DescribeLogDirsResponse):
        assert not answer.results
        if not found:
            return
    assert found, (rule, answer)
    assert {code for _, code in found} == {rule.error_code}
    assert {path for path, _ in found} <= places_of(key, rule.kind), found


def sees(key: ApiKey, answer: Message) -> bool:
    return HIDING[key] in set(values_in(answer))


GUARDED = [key for key in ApiKey if API_RULES[key]]
VERSIONS = [
    pytest.param(key, version, id=f"{APIS[key].name}-v{version}")
    for key in GUARDED
    for version in sorted(
        {APIS[key].served_min, APIS[key].version_max}
        | ({3} if key is ApiKey.ADD_PARTITIONS_TO_TXN else set())
    )
]


def test_every_api_has_rules_and_every_guarded_api_a_request() -> None:
    assert set(API_RULES) == set(ApiKey)
    assert set(REQUESTS) == set(GUARDED)
    assert set(PLACES) <= set(GUARDED)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_the_rules_are_what_happens(key: ApiKey, version: int, tmp_path: Path) -> None:
    properties = {"group_initial_rebalance_delay_ms": "0", "node_id": "1"}
    async with authorizing_broker(tmp_path, **properties) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        world = World(served, client, admin)
        await world.prepare()
        rules = in_force(key, version)
        await check_without_acls(world, key, version, rules)
        await check_allowed(world, key, version, rules)
        for rule in rules:
            await check_denied(world, key, version, rule)
        await check_super_user(world, key, version, rules)


async def check_without_acls(world: World, key: ApiKey, version: int, rules: list[Rule]) -> None:
    """Nothing is allowed: the first rule of the request refuses it."""
    for kind in dict.fromkeys(rule.kind for rule in rules):
        answer, has_changed = await world.call(key, version, [], kind.name)
        assert not has_changed
        if all(rule.scope is Scope.HIDDEN for rule in rules):
            assert not sees(key, answer)
        elif (key, version) != (ApiKey.DESCRIBE_LOG_DIRS, 1):
            # That version has no field for the error, and shows no directory.
            assert refusals_in(answer), answer


async def check_allowed(world: World, key: ApiKey, version: int, rules: list[Rule]) -> None:
    """The permissions of the rules, and no others, are enough."""
    acls = {granting(rule, rule.any_of[0]) for rule in rules}
    for kind in dict.fromkeys(rule.kind for rule in rules):
        answer, has_changed = await world.call(key, version, list(acls), kind.name)
        assert not refusals_in(answer), answer
        assert has_changed or key not in CHANGING or kind is ResourceType.CLUSTER, answer
        assert key not in HIDING or sees(key, answer), answer
    for rule in rules:
        others = {granting(other, other.any_of[0]) for other in rules if other is not rule}
        ways = [granting(rule, each) for each in rule.any_of[1:]]
        ways += [allow(ResourceType.CLUSTER, CLUSTER_NAME, each) for each in rule.or_on_cluster]
        for way in ways:
            answer, _ = await world.call(key, version, [*others, way], rule.kind.name)
            assert not refusals_in(answer), (way, answer)


async def check_denied(world: World, key: ApiKey, version: int, rule: Rule) -> None:
    """One permission is denied and every other allowed: the rule shows, and nothing changes."""
    acls = [*EVERYTHING, *denying(rule)]
    answer, has_changed = await world.call(key, version, acls, rule.kind.name)
    if rule.scope is Scope.HIDDEN:
        assert not sees(key, answer), answer
        assert not refusals_in(answer), answer
        return
    assert_refused(key, rule, answer)
    is_part = key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert is_part or not has_changed, answer


async def check_super_user(world: World, key: ApiKey, version: int, rules: list[Rule]) -> None:
    """A super user may do everything, also what ACLs deny."""
    acls: list[Any] = [
        deny(kind, ANY_NAME[kind], Operation.ALL, principal)
        for kind in KINDS
        for principal in (str(SUPER), "User:*")
    ]
    for kind in dict.fromkeys(rule.kind for rule in rules):
        answer, _ = await world.call(key, version, acls, kind.name, as_admin=True)
        assert not refusals_in(answer), answer
        assert key not in HIDING or sees(key, answer), answer
