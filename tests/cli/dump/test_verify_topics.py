"""Verification finds topics without their logs, and logs without their topics."""

from __future__ import annotations

import json

import pytest

from cli.dump.verify_topics import verify_topics
from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog
from server.topics.keys import DELETED, PLACED, TOPICS, UNSETTLED, placed_json
from server.topics.migration import CREATING
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
    is_earlier = not any(key.startswith(PLACED) for key in content)
    for name in ("metadata",) if is_earlier else ("metadata", "node"):
        store = MetadataLog(disk, f"/data/{name}", CompactionSettings())
        store.recover()
        store.append([["put", "/passing", "", 0], ["delete", "/passing"]])
        for key, value in content.items():
            if is_earlier or key.startswith(TOPICS) == (name == "metadata"):
                store.append([["put", key, value, 0]])
        store.close()
    return disk


def topic(*directory_ids: str) -> dict[str, str]:
    """A topic in the one store of an earlier release."""
    value = {"id": ID, "partitions": list(directory_ids), "configs": {}}
    return {TOPICS + "orders": json.dumps(value)}


def placed(*directory_ids: str, count: int | None = None) -> dict[str, str]:
    """A topic in the two stores; without partitions in the cluster's, if `count` is 0."""
    count = len(directory_ids) if count is None else count
    value = {"id": ID, "partitions": count, "configs": {}}
    content = {TOPICS + "orders": json.dumps(value)} if count else {}
    return content | {PLACED + ID: placed_json("orders", directory_ids)}


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
        pytest.param(placed(HERE), True, [], id="placed_sound"),
        pytest.param(placed(HERE, ELSEWHERE), True, [], id="placed_others_elsewhere"),
        pytest.param(placed(HERE, HERE), True, [Severity.ERROR], id="placed_a_log_is_gone"),
        pytest.param(placed(HERE) | {f"{UNSETTLED}{ID}/0": ""}, False, [], id="placed_not_synced"),
        pytest.param(placed(HERE, count=0), False, [], id="placed_before_the_topic"),
        pytest.param(placed(HERE, count=0), True, [], id="placed_log_before_the_topic"),
        pytest.param(placed(HERE, HERE, count=1), True, [], id="placed_before_it_grows"),
        pytest.param(placed(ELSEWHERE), True, [Severity.WARNING], id="placed_elsewhere"),
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
