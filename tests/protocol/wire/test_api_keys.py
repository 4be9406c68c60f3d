"""The API table: exactly what is advertised, since clients switch features by these numbers."""

from __future__ import annotations

import subprocess
import sys

from protocol.wire.api_keys import APIS, INTERNAL_APIS

KAFKA_ADVERTISES = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip
"""What Apache Kafka 4.3.1 said to ApiVersions 4, by key."""

MISSING = {64, *range(76, 82), *range(83, 93)}
"""Of those the ones that are not served; docs/design/administration.md says why."""


def test_every_api_of_kafka_is_served_or_known_to_be_missing() -> None:
    """Tools infer a broker's version from what it advertises."""
    assert KAFKA_ADVERTISES.keys() - APIS.keys() == MISSING
    assert APIS.keys() - KAFKA_ADVERTISES.keys() == INTERNAL_APIS
    for api in APIS.values():
        if api.key in INTERNAL_APIS:
            continue
        low, high = KAFKA_ADVERTISES[api.key]
        assert low <= api.version_min <= api.version_max <= high, api.name


def test_advertised_versions_are_exactly_these() -> None:
    assert {
        api.name: (int(api.key), api.version_min, api.version_max) for api in APIS.values()
    } == {
        "Produce": (0, 0, 13),
        "Fetch": (1, 4, 18),
        "ListOffsets": (2, 1, 11),
        "Metadata": (3, 0, 13),
        "OffsetCommit": (8, 2, 10),
        "OffsetFetch": (9, 1, 10),
        "FindCoordinator": (10, 0, 6),
        "JoinGroup": (11, 0, 9),
        "Heartbeat": (12, 0, 4),
        "LeaveGroup": (13, 0, 5),
        "SyncGroup": (14, 0, 5),
        "DescribeGroups": (15, 0, 6),
        "ListGroups": (16, 0, 5),
        "SaslHandshake": (17, 0, 1),
        "ApiVersions": (18, 0, 4),
        "CreateTopics": (19, 2, 7),
        "DeleteTopics": (20, 1, 6),
        "DeleteRecords": (21, 0, 2),
        "InitProducerId": (22, 0, 5),
        "OffsetForLeaderEpoch": (23, 2, 4),
        "AddPartitionsToTxn": (24, 0, 5),
        "AddOffsetsToTxn": (25, 0, 4),
        "EndTxn": (26, 0, 5),
        "WriteTxnMarkers": (27, 1, 1),
        "TxnOffsetCommit": (28, 0, 5),
        "DescribeAcls": (29, 1, 3),
        "CreateAcls": (30, 1, 3),
        "DeleteAcls": (31, 1, 3),
        "DescribeConfigs": (32, 1, 4),
        "AlterConfigs": (33, 0, 2),
        "AlterReplicaLogDirs": (34, 1, 2),
        "DescribeLogDirs": (35, 1, 5),
        "SaslAuthenticate": (36, 0, 2),
        "CreatePartitions": (37, 0, 3),
        "CreateDelegationToken": (38, 1, 3),
        "RenewDelegationToken": (39, 1, 2),
        "ExpireDelegationToken": (40, 1, 2),
        "DescribeDelegationToken": (41, 1, 3),
        "DeleteGroups": (42, 0, 2),
        "ElectLeaders": (43, 0, 2),
        "IncrementalAlterConfigs": (44, 0, 1),
        "AlterPartitionReassignments": (45, 0, 1),
        "ListPartitionReassignments": (46, 0, 0),
        "OffsetDelete": (47, 0, 0),
        "DescribeClientQuotas": (48, 0, 1),
        "AlterClientQuotas": (49, 0, 1),
        "DescribeUserScramCredentials": (50, 0, 0),
        "AlterUserScramCredentials": (51, 0, 0),
        "DescribeQuorum": (55, 0, 2),
        "UpdateFeatures": (57, 0, 2),
        "FetchSnapshot": (59, 0, 1),
        "DescribeCluster": (60, 0, 2),
        "DescribeProducers": (61, 0, 0),
        "DescribeTransactions": (65, 0, 0),
        "ListTransactions": (66, 0, 1),
        "ConsumerGroupHeartbeat": (68, 0, 1),
        "ConsumerGroupDescribe": (69, 0, 1),
        "ListConfigResources": (74, 0, 1),
        "DescribeTopicPartitions": (75, 0, 0),
    }
    assert list(APIS) == sorted(APIS)


def test_only_produce_advertises_versions_that_it_refuses() -> None:
    """KAFKA-18659: without Produce 0-2, older librdkafka does not compress."""
    assert {
        api.name: api.served_min for api in APIS.values() if api.served_min > api.version_min
    } == {"Produce": 3}


def test_message_classes_are_those_of_the_api() -> None:
    for api in APIS.values():
        assert api.request_type.__name__ == f"{api.name}Request"
        assert api.response_type.__name__ == f"{api.name}Response"
        assert api.request_type.api_key == api.response_type.api_key == api.key


def test_importing_the_table_imports_and_compiles_no_message() -> None:
    """A broker that was just started has none to decode."""
    program = (
        "import sys, protocol.wire.decode, protocol.wire.encode, protocol.wire.request\n"
        "import protocol.wire.response\n"
        "print([m for m in sys.modules if m.startswith('protocol.messages.')],\n"
        "      protocol.wire.decode._decoders, protocol.wire.encode._encoders)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "[] {} {}\n"
