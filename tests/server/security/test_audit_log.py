"""What the audit log says of requests: who changed what, and no value."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.request import RequestHeader
from server.config.listeners.addresses import Address
from server.security.acls import Operation, Permission, ResourceType
from server.security.audit_log import LOGGER, AuditLog
from server.security.audited_changes import AUDITED, RESULTS_MAX
from server.security.principal import user
from tests.harness.sasl_login import SALT, plain_login, sasl_broker
from tests.harness.served_broker import serving_broker

NOT_CHANGES = {
    # They append records, offsets and states of clients, not metadata of the cluster.
    "Produce", "OffsetCommit", "TxnOffsetCommit", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "ConsumerGroupHeartbeat", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    # They only read.
    "Fetch", "ListOffsets", "Metadata", "OffsetFetch", "FindCoordinator", "DescribeGroups", "ListGroups",
    "ApiVersions", "OffsetForLeaderEpoch", "DescribeConfigs", "DescribeLogDirs", "DescribeCluster",
    "DescribeProducers", "DescribeTransactions", "ListTransactions", "ConsumerGroupDescribe",
    "DescribeTopicPartitions", "ListPartitionReassignments", "DescribeQuorum", "ListConfigResources",
    "DescribeAcls", "DescribeClientQuotas", "DescribeUserScramCredentials", "DescribeDelegationToken",
    # Their refusals are logged where they happen.
    "SaslHandshake", "SaslAuthenticate",
    # Followers read.
    "FetchSnapshot",
    # One broker has nothing to elect and to move, and no tokens.
    "ElectLeaders", "AlterPartitionReassignments", "CreateDelegationToken", "RenewDelegationToken",
    "ExpireDelegationToken",
}  # fmt: skip


def test_every_api_either_is_audited_or_changes_nothing_that_an_audit_asks_for() -> None:
    audited = {each.api for each in AUDITED.values()}
    names = {api.name for api in APIS.values()}
    assert names - audited == NOT_CHANGES
    assert not audited & NOT_CHANGES


async def test_a_change_is_logged_with_its_author_and_the_result_for_each_resource(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = CreateTopicsRequest(topics=(new_topic("orders"), new_topic("no such/name")))
    with caplog.at_level(logging.INFO, LOGGER):
        async with serving_broker(tmp_path) as served:
            await served.call(request, 7, CreateTopicsResponse)
    (line,) = audited(caplog)
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "changed",
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "client": line["client"],
        "api": "CreateTopics",
        "results": [
            {"resource": "Topic:orders", "result": "NONE"},
            {"resource": "Topic:no such/name", "result": "INVALID_TOPIC_EXCEPTION"},
        ],
    }


async def test_a_validation_and_a_request_that_reads_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = CreateTopicsRequest(topics=(new_topic("orders"),), validate_only=True)
    with caplog.at_level(logging.INFO, LOGGER):
        async with serving_broker(tmp_path) as served:
            await served.call(request, 7, CreateTopicsResponse)
            await served.call(MetadataRequest(topics=None), 9, MetadataResponse)
    assert audited(caplog) == []


async def test_a_changed_property_is_named_and_its_value_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=0, value="86399999")
    resource = AlterConfigsResource(resource_type=2, resource_name="orders", configs=(change,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    with caplog.at_level(logging.INFO, LOGGER):
        async with serving_broker(tmp_path) as served:
            await served.create("orders")
            await served.call(request, 1, IncrementalAlterConfigsResponse)
    (line,) = audited(caplog)
    assert line["results"] == [
        {"resource": "Topic:orders", "result": "NONE", "properties": ["retention.ms"]}
    ]
    assert "86399999" not in caplog.text


async def test_a_huge_request_makes_one_line_of_bounded_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = tuple(
        DeleteRecordsPartition(partition_index=number, offset=0) for number in range(20_000)
    )
    topic = DeleteRecordsTopic(name="x" * 10_000, partitions=partitions)
    request = DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)
    with caplog.at_level(logging.INFO, LOGGER):
        async with serving_broker(tmp_path) as served:
            await served.call(request, 2, DeleteRecordsResponse)
    (line,) = audited(caplog)
    assert len(line["results"]) == RESULTS_MAX
    assert line["more"] is True
    assert len(json.dumps(line)) < 100_000


def test_a_denial_says_by_which_rule_and_a_refused_login_who_it_claimed_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Client:
        principal = user("bob")
        client_host = "10.0.0.7"
        endpoint = Address(name="INSIDE", host="", port=1)

    log = AuditLog(lambda: 0)
    header = RequestHeader(
        api_key=ApiKey.PRODUCE, api_version=9, correlation_id=1, client_id='quote"\n'
    )
    rule = "no ACL allows it"
    with caplog.at_level(logging.INFO, LOGGER):
        log.denied(
            Client(), header, api="Produce", operation="Write", resource="Topic:orders", rule=rule
        )
        log.refused(Client(), mechanism="PLAIN", user="mallory", reason="wrong password")
    denied, refused = audited(caplog)
    assert denied == {
        "time": "1970-01-01T00:00:00.000Z", "event": "denied", "principal": "User:bob",
        "host": "10.0.0.7", "listener": "INSIDE", "client": 'quote"\n', "api": "Produce",
        "operation": "Write", "resource": "Topic:orders", "rule": rule,
    }  # fmt: skip
    assert (refused["event"], refused["user"], refused["reason"]) == (
        "refused", "mallory", "wrong password",
    )  # fmt: skip


def new_topic(name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(CreatableTopicConfig(name="retention.ms", value="1234567"),),
    )


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Returns the lines of the audit log; each is one line of JSON."""
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert all("\n" not in line for line in lines)
    return [json.loads(line) for line in lines]


AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


async def test_denials_refused_logins_and_changes_of_security_are_logged_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        async with sasl_broker(tmp_path, **AUTHORIZED) as served:
            await served.call(new_acl("alice"), 3, CreateAclsResponse)
            await served.call(new_user("carol"), 0, AlterUserScramCredentialsResponse)
            await served.call(new_quota("carol"), 1, AlterClientQuotasResponse)
            await plain_login(await served.connect("SASL"), b"\0alice\0wrong-secret")
            alice = await served.connect("SASL")
            await plain_login(alice)
            request = CreateTopicsRequest(topics=(new_topic("orders"),))
            await alice.call(request, 7, CreateTopicsResponse)
    by_event = {(line["event"], line.get("api")): line for line in audited(caplog)}
    assert by_event["changed", "CreateAcls"]["results"] == [
        {
            "resource": "Topic:LITERAL:orders ALLOW READ User:alice from *",
            "result": "NONE",
        }
    ]
    assert by_event["changed", "AlterUserScramCredentials"]["results"] == [
        {"resource": "User:carol", "result": "NONE"}
    ]
    assert by_event["changed", "AlterClientQuotas"]["results"] == [
        {"resource": "Quota:user=carol", "result": "NONE", "properties": ["producer_byte_rate"]}
    ]
    refused = by_event["refused", None]
    assert (refused["mechanism"], refused["user"]) == ("PLAIN", "alice")
    denied = by_event["denied", "CreateTopics"]
    assert (denied["principal"], denied["listener"]) == ("User:alice", "SASL")
    assert denied["operation"] == "CREATE"
    assert denied["rule"] == "DefaultDeny"
    assert "secret" not in caplog.text
    assert SALT.hex() not in caplog.text


def new_acl(name: str) -> CreateAclsRequest:
    acl = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        principal=f"User:{name}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    return CreateAclsRequest(creations=(acl,))


def new_user(name: str) -> AlterUserScramCredentialsRequest:
    credential = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=SALT, salted_password=b"the secret itself"
    )
    return AlterUserScramCredentialsRequest(deletions=(), upsertions=(credential,))


def new_quota(name: str) -> AlterClientQuotasRequest:
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=name),),
        ops=(OpData(key="producer_byte_rate", value=1048576.0, remove=False),),
    )
    return AlterClientQuotasRequest(entries=(entry,), validate_only=False)
