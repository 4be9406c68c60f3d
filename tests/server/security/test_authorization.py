"""What clients without permissions see, and what they may do with a resource, over real sockets."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.fetch import FetchResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.request_context import DENIALS_MAX
from server.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from server.security.audit_log import LOGGER
from server.security.principal import Principal
from tests.harness.authorized_broker import (
    SUPER,
    allow,
    authorizing_broker,
    connect_as,
    deny,
    set_acls,
)
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import batch_of, fetch_request, only_produced, produce_request

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DELETE = Operation.DELETE
NOT_FOR_YOU = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def names_seen(client: RawClient) -> set[str | None]:
    response = await client.call(MetadataRequest(topics=None), 12, MetadataResponse)
    assert {topic.error_code for topic in response.topics} <= {ErrorCode.NONE}
    return {topic.name for topic in response.topics}


async def test_all_topics_are_those_that_the_client_may_describe(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        for name in ("orders", "orders-2", "secret"):
            await served.create(name)
        prefix = Acl(
            TOPIC, "orders", PatternType.PREFIXED, "User:*", "127.0.0.1", READ, Permission.ALLOW
        )
        await set_acls(served, [prefix, deny(TOPIC, "orders-2", DESCRIBE)])

        assert await names_seen(client) == {"orders"}
        assert await names_seen(admin) == {"orders", "orders-2", "secret"}
        response = await client.call(
            DescribeTopicPartitionsRequest(topics=()), 0, DescribeTopicPartitionsResponse
        )
        assert [topic.name for topic in response.topics] == ["orders"]


async def test_a_topic_asked_for_by_its_id_keeps_its_name_to_itself(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        topic = await served.create("secret")
        client = await served.connect()
        asked = (MetadataRequestTopic(name=None, topic_id=topic.id),)
        response = await client.call(MetadataRequest(topics=asked), 12, MetadataResponse)
        (found,) = response.topics
        assert (found.error_code, found.name, found.topic_id) == (NOT_FOR_YOU, None, topic.id)

        by_id = DeleteTopicsRequest(
            topics=(DeleteTopicState(name=None, topic_id=topic.id),), timeout_ms=1000
        )
        (refused,) = (await client.call(by_id, 6, DeleteTopicsResponse)).responses
        assert (refused.error_code, refused.name) == (NOT_FOR_YOU, None)
        await set_acls(served, [allow(TOPIC, "secret", DESCRIBE)])
        (refused,) = (await client.call(by_id, 6, DeleteTopicsResponse)).responses
        assert (refused.error_code, refused.name) == (NOT_FOR_YOU, "secret")
        await set_acls(served, [allow(TOPIC, "secret", DELETE)])
        (deleted,) = (await client.call(by_id, 6, DeleteTopicsResponse)).responses
        assert (deleted.error_code, deleted.name) == (ErrorCode.NONE, "secret")


async def test_a_client_cannot_learn_which_topics_exist(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path, auto_create_topics_enable="false") as served:
        await served.create("secret")
        client = await served.connect()
        names = ("secret", "missing")
        asked = tuple(MetadataRequestTopic(name=name) for name in names)
        response = await client.call(MetadataRequest(topics=asked), 12, MetadataResponse)
        assert {(t.error_code, t.topic_id.int) for t in response.topics} == {(NOT_FOR_YOU, 0)}
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
        deleted = await client.call(request, 4, DeleteTopicsResponse)
        assert [each.error_code for each in deleted.responses] == [NOT_FOR_YOU] * 2


async def test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_describe(
    tmp_path: Path,
) -> None:
    async with authorizing_broker(tmp_path) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        for name in ("orders", "secret"):
            await served.create(name)
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        commit = OffsetCommitRequest(
            group_id="team",
            topics=tuple(
                OffsetCommitRequestTopic(name=name, partitions=(partition,))
                for name in ("orders", "secret")
            ),
        )
        await admin.call(commit, 8, OffsetCommitResponse)
        await set_acls(served, [allow(GROUP, "team", READ), allow(TOPIC, "orders", WRITE)])

        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id="team", topics=None),)
        )
        (group,) = (await client.call(request, 8, OffsetFetchResponse)).groups

        assert group.error_code == ErrorCode.NONE
        assert [topic.name for topic in group.topics] == ["orders"]


async def test_one_request_is_served_for_the_topics_that_are_allowed(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        for name in ("orders", "secret"):
            await served.create(name)
        client = await served.connect()
        await set_acls(served, [allow(TOPIC, "orders", READ)])
        wanted = fetch_request([("orders", 0, 0), ("secret", 0, 0)])
        response = await client.call(wanted, 12, FetchResponse)
        codes = {t.topic: [p.error_code for p in t.partitions] for t in response.responses}
        assert codes == {"orders": [ErrorCode.NONE], "secret": [NOT_FOR_YOU]}


async def test_a_producer_without_answers_is_closed_if_it_may_not_write(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        client.send(produce_request("orders", batch_of(1), acks=0), 9)
        assert await client.is_closed()
        transactional = await served.connect()
        transactional.send(
            produce_request("orders", batch_of(1), acks=0, transactional_id="till"), 9
        )
        assert await transactional.is_closed()
        assert served.log("orders").log_end_offset == 0


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([allow(TOPIC, "orders", READ)], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([allow(TOPIC, "orders", WRITE)], ErrorCode.NONE),
        ([allow(CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE)], ErrorCode.NONE),
        (
            [allow(TOPIC, "orders", WRITE), deny(TOPIC, "*", WRITE)],
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
async def test_write_on_any_topic_is_enough_for_an_idempotent_producer(
    tmp_path: Path, acls: list[Acl], expected: ErrorCode
) -> None:
    """KIP-679."""
    async with authorizing_broker(tmp_path) as served:
        await set_acls(served, acls)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        response = await served.call(request, 4, InitProducerIdResponse)
        assert response.error_code == expected


async def test_acls_are_of_principals(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders")
        alice = await connect_as(served, Principal.parse("User:alice"))
        anonymous = await served.connect()
        await set_acls(served, [allow(TOPIC, "orders", WRITE, "User:alice")])
        request = produce_request("orders", batch_of(1))
        codes = [
            only_produced(await client.call(request, 9, ProduceResponse)).error_code
            for client in (alice, anonymous)
        ]
        assert codes == [ErrorCode.NONE, NOT_FOR_YOU]


async def test_the_allowed_operations_are_those_of_the_client(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders")
        client, admin = await served.connect(), await connect_as(served, SUPER)
        await set_acls(served, [allow(TOPIC, "orders", READ)])

        async def allowed(of: RawClient) -> tuple[int, int]:
            metadata = await of.call(
                MetadataRequest(
                    topics=(MetadataRequestTopic(name="orders"),),
                    include_topic_authorized_operations=True,
                ),
                12,
                MetadataResponse,
            )
            partitions = await of.call(
                DescribeTopicPartitionsRequest(topics=()), 0, DescribeTopicPartitionsResponse
            )
            cluster = await of.call(
                DescribeClusterRequest(include_cluster_authorized_operations=True),
                1,
                DescribeClusterResponse,
            )
            (topic,) = metadata.topics
            (described,) = partitions.topics
            assert described.topic_authorized_operations == topic.topic_authorized_operations
            return topic.topic_authorized_operations, cluster.cluster_authorized_operations

        def bits(*operations: Operation) -> int:
            return sum(1 << each for each in operations)

        assert await allowed(client) == (bits(READ, DESCRIBE), 0)
        all_on_topic, all_on_cluster = await allowed(admin)
        assert all_on_topic == bits(*(Operation(n) for n in (3, 4, 5, 6, 7, 8, 10, 11)))
        assert all_on_cluster == bits(*(Operation(n) for n in (5, 7, 8, 9, 10, 11, 12)))
        await set_acls(served, [allow(CLUSTER, CLUSTER_NAME, DESCRIBE)])
        cluster = await client.call(
            DescribeClusterRequest(include_cluster_authorized_operations=True),
            1,
            DescribeClusterResponse,
        )
        assert cluster.cluster_authorized_operations == bits(DESCRIBE)


async def test_the_allowed_operations_on_a_group_are_those_of_the_client(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        await served.create("orders")
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        topics = (OffsetCommitRequestTopic(name="orders", partitions=(partition,)),)
        commit = OffsetCommitRequest(group_id="team", topics=topics)
        await admin.call(commit, 8, OffsetCommitResponse)
        await set_acls(served, [allow(GROUP, "team", Operation.ALL), deny(GROUP, "team", DELETE)])
        request = DescribeGroupsRequest(groups=("team",), include_authorized_operations=True)
        (group,) = (await client.call(request, 5, DescribeGroupsResponse)).groups
        assert group.authorized_operations == sum(1 << each for each in (3, 8, 10, 11))


def creation(name: str, principal: str, *, operation: int = 3) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=4,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_created_described_and_deleted_by_requests(
    tmp_path: Path, version: int
) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders-1")
        client, admin = await served.connect(), await connect_as(served, SUPER)
        request = CreateAclsRequest(
            creations=(
                creation("orders", "User:ANONYMOUS"),
                creation("", "User:alice"),
                creation("orders", "User:alice", operation=4),
            )
        )
        created = await admin.call(request, version, CreateAclsResponse)
        assert [(each.error_code, each.error_message) for each in created.results] == [
            (ErrorCode.NONE, None),
            (ErrorCode.INVALID_REQUEST, "Invalid empty resource name"),
            (ErrorCode.NONE, None),
        ]
        assert await names_seen(client) == {"orders-1"}

        everything = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        (resource,) = (await admin.call(everything, version, DescribeAclsResponse)).resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (
            2, "orders", 4,
        )  # fmt: skip
        assert [(each.principal, each.operation) for each in resource.acls] == [
            ("User:ANONYMOUS", 3),
            ("User:alice", 4),
        ]

        wanted = DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter="orders-1",
            pattern_type_filter=2,
            principal_filter="User:ANONYMOUS",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = await admin.call(
            DeleteAclsRequest(filters=(wanted,)), version, DeleteAclsResponse
        )
        (result,) = deleted.filter_results
        assert result.error_code == ErrorCode.NONE
        assert [each.principal for each in result.matching_acls] == ["User:ANONYMOUS"]
        assert await names_seen(client) == set()


async def test_a_filter_with_an_unknown_number_is_refused(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        admin = await connect_as(served, SUPER)
        request = DescribeAclsRequest(
            resource_type_filter=99,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        response = await admin.call(request, 3, DescribeAclsResponse)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.error_message == "Unknown patternFilter."


async def test_a_regular_expression_matches_topics_that_the_member_may_describe(
    tmp_path: Path,
) -> None:
    async with authorizing_broker(tmp_path) as served:
        client = await served.connect()
        for name in ("orders", "secret"):
            await served.create(name)
        await set_acls(served, [allow(GROUP, "team", READ), allow(TOPIC, "orders", READ)])

        async def assigned(member_epoch: int) -> tuple[int, set[str]]:
            is_join = member_epoch == 0
            request = ConsumerGroupHeartbeatRequest(
                group_id="team",
                member_id="m",
                member_epoch=member_epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=(),
                subscribed_topic_regex="[os].*",
                topic_partitions=() if is_join else held,
            )
            answer = await client.call(request, 1, ConsumerGroupHeartbeatResponse)
            assert answer.error_code == ErrorCode.NONE
            assert answer.assignment is not None
            parts = answer.assignment.topic_partitions
            topics = [served.broker.topics.by_id(each.topic_id) for each in parts]
            return answer.member_epoch, {topic.name for topic in topics if topic is not None}

        held: tuple[TopicPartitions, ...] = ()
        epoch, names = await assigned(0)
        assert names == {"orders"}
        orders = served.broker.topics.get("orders")
        assert orders is not None
        held = (TopicPartitions(topic_id=orders.id, partitions=(0,)),)
        await served.create("secret-2")
        epoch, names = await assigned(epoch)
        assert names == {"orders"}
        await set_acls(served, [allow(GROUP, "team", READ), allow(TOPIC, "*", READ)])
        await served.create("secret-3")
        epoch, names = await assigned(epoch)
        assert names == {"orders", "secret", "secret-2", "secret-3"}


async def test_denials_and_changes_of_acls_are_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        async with authorizing_broker(tmp_path) as served:
            client, admin = await served.connect(), await connect_as(served, SUPER)
            names = ("hidden", *(f"t{number}" for number in range(200)))
            asked = tuple(MetadataRequestTopic(name=name) for name in names)
            await client.call(MetadataRequest(topics=asked), 12, MetadataResponse)
            await client.call(MetadataRequest(topics=None), 12, MetadataResponse)
            request = CreateAclsRequest(creations=(creation("orders", "User:alice"),))
            await admin.call(request, 3, CreateAclsResponse)
            await client.call(request, 3, CreateAclsResponse)
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == LOGGER]
    first, changed = lines[0], lines[DENIALS_MAX]
    assert {each["event"] for each in lines[:DENIALS_MAX]} == {"denied"}
    assert {key: first[key] for key in ("principal", "api", "operation", "resource", "rule")} == {
        "principal": "User:ANONYMOUS",
        "api": "Metadata",
        "operation": "DESCRIBE",
        "resource": "Topic:hidden",
        "rule": "DefaultDeny",
    }
    acl = "Topic:PREFIXED:orders ALLOW READ User:alice from *"
    assert (changed["event"], changed["principal"]) == ("changed", "User:admin")
    assert changed["results"] == [{"resource": acl, "result": "NONE"}]
    denied, refused = lines[DENIALS_MAX + 1 :]
    assert (denied["event"], denied["resource"]) == ("denied", "Cluster:kafka-cluster")
    assert refused["results"] == [{"resource": acl, "result": "CLUSTER_AUTHORIZATION_FAILED"}]


async def test_ten_thousand_acls_in_a_request_do_not_hold_the_loop(tmp_path: Path) -> None:
    """The harness fails the test if a turn of the loop takes too long."""
    async with authorizing_broker(tmp_path) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        await served.create("orders-7")
        for first in (0, 10_000):
            request = CreateAclsRequest(
                creations=tuple(
                    creation(f"orders-{number % 5_000}", f"User:{number // 5_000}")
                    for number in range(first, first + 10_000)
                )
            )
            created = await admin.call(request, 3, CreateAclsResponse)
            assert {each.error_code for each in created.results} == {ErrorCode.NONE}
        assert await names_seen(client) == set()
        request = CreateAclsRequest(
            creations=tuple(creation(f"more-{number}", "User:x") for number in range(10_001))
        )
        refused = await admin.call(request, 3, CreateAclsResponse)
        assert {each.error_code for each in refused.results} == {ErrorCode.POLICY_VIOLATION}

        everything = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        described = await admin.call(everything, 3, DescribeAclsResponse)
        assert len(described.resources) == 5_000
        assert sum(len(each.acls) for each in described.resources) == 20_000
        of_principal = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:0",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = await admin.call(
            DeleteAclsRequest(filters=(of_principal,)), 3, DeleteAclsResponse
        )
        assert [len(each.matching_acls) for each in deleted.filter_results] == [5_000]
