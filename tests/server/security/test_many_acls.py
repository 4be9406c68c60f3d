"""100,000 ACLs: they are created, looked up, described and deleted without a long turn of the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.error_codes import ErrorCode
from server.config.authorization_config import AUTHORIZERS
from server.security.acl_messages import describe_request
from server.security.acl_store import CHANGES_MAX
from server.security.acls import AclFilter, Operation, PatternType, Permission, ResourceType
from tests.harness.raw_client import RawClient
from tests.harness.watched_broker import WatchedBroker, watched_broker
from tests.server.test_large_requests import TURN_SECONDS_MAX

ACLS = 100_000
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    properties = {"authorizer_class_name": AUTHORIZERS[0], "super_users": "User:ANONYMOUS"}
    with watched_broker(tmp_path_factory.mktemp("broker"), **properties) as watched:
        yield watched


def acls(numbers: range) -> CreateAclsRequest:
    """Returns ACLs for topics that do not exist, half of them for prefixes, some of which deny."""
    return CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=f"absent-{number}",
                resource_pattern_type=PREFIXED if number % 2 else LITERAL,
                principal=f"User:user-{number % 1_000}",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW if number % 10 else Permission.DENY,
            )
            for number in numbers
        )
    )


@asynccontextmanager
async def no_long_turn(broker: WatchedBroker) -> AsyncIterator[RawClient]:
    """Check the turns of the broker's loop while the block asks it."""
    async with await RawClient.connect(
        broker.host, broker.port, limit=1 << 28, timeout_s=60
    ) as client:
        with broker.longest_turn() as longest:
            yield client
        assert longest() <= TURN_SECONDS_MAX


async def test_they_are_served_in_slices(broker: WatchedBroker) -> None:
    for start in range(0, ACLS, CHANGES_MAX):
        request = acls(range(start, start + CHANGES_MAX))
        async with no_long_turn(broker) as client:
            created = await client.call(request, 3, CreateAclsResponse)
        assert {each.error_code for each in created.results} == {ErrorCode.NONE}

    async with no_long_turn(broker) as client:
        # An ACL that exists is no change; more new ones than allowed are refused together.
        again = await client.call(acls(range(CHANGES_MAX)), 3, CreateAclsResponse)
        over = await client.call(acls(range(ACLS, ACLS + CHANGES_MAX + 1)), 3, CreateAclsResponse)
        await client.call(MetadataRequest(topics=None), 1, MetadataResponse)
    assert {each.error_code for each in again.results} == {ErrorCode.NONE}
    assert {each.error_code for each in over.results} == {ErrorCode.POLICY_VIOLATION}

    async with no_long_turn(broker) as client:
        described = await client.call(all_acls(), 3, DescribeAclsResponse)
    assert sum(len(each.acls) for each in described.resources) == ACLS

    async with no_long_turn(broker) as client:
        refused = await client.call(deletion(None), 3, DeleteAclsResponse)
        deleted = await client.call(deletion("User:user-1"), 3, DeleteAclsResponse)
    assert [each.error_code for each in refused.filter_results] == [ErrorCode.POLICY_VIOLATION]
    assert [len(each.matching_acls) for each in deleted.filter_results] == [ACLS // 1_000]


def all_acls() -> DescribeAclsRequest:
    return describe_request(AclFilter())


def deletion(principal: str | None) -> DeleteAclsRequest:
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=principal,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    return DeleteAclsRequest(filters=(wanted,))
