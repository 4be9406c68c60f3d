"""Verification finds topics without their logs, and logs without their topics."""

from __future__ import annotations

import json

import pytest

from cli.dump.verify_topics import verify_topics
from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog
from server.topics.keys import CREATING, DELETED, TOPICS, UNSETTLED
from storage.files.paths import topic_directory, topic_id_text
from storage.verify.findings import Severity
from storage.verify.verify import find_logs
from tests.harness.memory_fs import MemoryFileSystem
from tests.storage.log.test_directory import META, TOPIC_ID, create_log, opened, stop

LOG = f"/data/{topic_directory('orders', TOPIC_ID)}"
ID = topic_id_text(TOPIC_ID)


def disk_with(content: dict[str, str], *, has_log: bool = True) -> MemoryFileSystem:
    """A data directory with or without a log, and the contents of the metadata store."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    if has_log:
        create_log(directory)
    stop(directory)
    store = MetadataLog(disk, "/data/metadata", CompactionSettings())
    store.recover()
    store.append([["put", "/passing", "", 0], ["delete", "/passing"]])
    for key, value in content.items():
        store.append([["put", key, value, 0]])
    store.close()
    return disk


def topic(*directory_ids: str) -> dict[str, str]:
    value = {"id": ID, "partitions": list(directory_ids), "configs": {}}
    return {TOPICS + "orders": json.dumps(value)}


HERE, ELSEWHERE = META.directory_id, "e" * 22


@pytest.mark.parametrize(
    ("content", "has_log", "severities"),
    [
        pytest.param(topic(HERE), True, [], id="sound"),
        pytest.param(topic(HERE, ELSEWHERE), True, [], id="other_partitions_elsewhere"),
        pytest.param(topic(HERE, HERE), True, [Severity.ERROR], id="a_log_is_gone"),
        pytest.param(topic(HERE), False, [Severity.ERROR], id="the_only_log_is_gone"),
        pytest.param(topic(HERE) | {CREATING + ID: ""}, False, [], id="being_created"),
        pytest.param(topic(HERE) | {f"{UNSETTLED}{ID}/0": ""}, False, [], id="never_synced"),
        pytest.param({}, True, [Severity.WARNING], id="no_topic"),
        pytest.param(topic(ELSEWHERE), True, [Severity.WARNING], id="log_of_another_directory"),
        pytest.param({DELETED + ID: '{"name":"orders"}'}, True, [], id="being_deleted"),
    ],
)
def test_topics_and_logs_are_held_against_each_other(
    content: dict[str, str], has_log: bool, severities: list[Severity]
) -> None:
    disk = disk_with(content, has_log=has_log)
    found = find_logs(disk, "/data")
    assert found is not None

    findings = verify_topics(disk, found)

    assert [finding.severity for finding in findings] == severities
    assert all(finding.path.startswith(LOG) for finding in findings)


def test_a_directory_without_metadata_has_no_topics_to_look_at() -> None:
    disk = disk_with({})
    disk.remove_tree("/data/metadata")
    found = find_logs(disk, "/data")
    assert found is not None

    assert verify_topics(disk, found) == ()
