"""`POST .../preview`: what a change of a topic's settings would remove, in a whole broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from server.admin.policy_changes import CHANGES_BYTES_MAX, parse_changes
from server.admin.refusals import CompactionRefused
from storage.files.paths import topic_id_text
from tests.harness.served_broker import batch_of
from tests.harness.steered_broker import SteeredBroker, steered_broker

COMPACT = {"name": "cleanup.policy", "operation": "set", "value": "compact"}
PREVIEW = "/topics/plain/preview"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(tmp_path) as steered:
        await steered.served.create("plain", 2, cleanup_policy="delete")
        await steered.produce_dirty("plain")
        await steered.served.produce("plain", batch_of(1, key=None))
        yield steered


def body(*changes: dict[str, str]) -> str:
    return json.dumps({"changes": changes})


async def previews(broker: SteeredBroker, *changes: dict[str, str], where: str = PREVIEW) -> Any:
    """Returns the previews of the partitions."""
    status, job = await broker.ask("POST", where, data=body(*changes))
    assert status == 202, job
    job = await broker.finished(job)
    assert job["is_done"], job
    return [part["preview"] for part in job["partitions"]]


async def test_compaction_is_foretold_before_it_is_set_and_nothing_changes(
    broker: SteeredBroker,
) -> None:
    dirty, empty = await previews(broker, COMPACT)

    assert (dirty["changes_deletion"], dirty["changes_compaction"]) == (False, True)
    assert dirty["records"] == 4
    compaction = dirty["compaction"]
    assert compaction["plan"]["dies"]["superseded"]["records"] == 2
    assert compaction["records_dropped"] == compaction["plan"]["report"]["records_before"] - 2
    assert (compaction["unkeyed_dropped"], compaction["unkeyed_kept"]) == (0, 0)
    assert compaction["bytes_freed"] > 0
    assert any("without a key will be refused" in note for note in dirty["notes"])
    assert empty["compaction"] is None
    log = broker.served.log("plain")
    assert (len(log.segments), log.config.cleanup_policy) == (1, ("delete",))
    assert (await broker.get())["quarantined"] == []


async def test_retention_is_foretold_by_partition(broker: SteeredBroker) -> None:
    broker.served.log("plain").roll(0)
    by_size = {"name": "retention.bytes", "operation": "set", "value": "0"}

    where = "/topics/plain/partitions/0/preview"
    (one,) = await previews(broker, by_size, where=where)

    deletion = one["deletion"]
    assert (deletion["segments_by_size"], deletion["records"]) == (1, 4)
    assert deletion["bytes"] == one["bytes"] > 0
    assert deletion["log_start_offset"] == 4
    assert one["compaction"] is None
    assert broker.served.log("plain").log_start_offset == 0


async def test_lists_grow_and_shrink_and_harm_is_named(broker: SteeredBroker) -> None:
    both = {"name": "cleanup.policy", "operation": "append", "value": "compact"}
    dirtiest = {"name": "min.cleanable.dirty.ratio", "operation": "set", "value": "0"}

    first, _ = await previews(broker, both, dirtiest)

    assert first["changes_compaction"]
    assert "min.cleanable.dirty.ratio=0" in first["warnings"][0]


async def test_settings_that_remove_nothing_are_answered_without_reading_the_log(
    broker: SteeredBroker,
) -> None:
    change = {"name": "segment.ms", "operation": "set", "value": "60000"}

    first, _ = await previews(broker, change)

    assert not first["changes_deletion"]
    assert not first["changes_compaction"]
    assert first["deletion"]["segments"] == 0


async def test_a_topic_of_another_cluster_is_not_previewed(broker: SteeredBroker) -> None:
    topic = broker.served.broker.topics.get("plain")
    assert topic is not None
    ours, theirs = topic_id_text(topic.id), "AAAAAAAAAAAAAAAAAAAAAQ"

    accepted, _ = await broker.ask("POST", f"{PREVIEW}?topic_id={ours}", data=body(COMPACT))
    status, answer = await broker.ask("POST", f"{PREVIEW}?topic_id={theirs}", data=body(COMPACT))

    assert (accepted, status) == (202, 409)
    assert "it is another cluster's" in answer["error"]


async def test_a_wrong_request_is_refused_with_a_sentence(broker: SteeredBroker) -> None:
    wrong: list[tuple[str, str, int, str]] = [
        (PREVIEW, "[]", 400, "send the changes as JSON"),
        (PREVIEW, body({"name": "x", "operation": "set"}), 409, "Null value not supported"),
        (PREVIEW, body(COMPACT | {"operation": "let"}), 400, "send the changes as JSON"),
        (PREVIEW, body(COMPACT | {"name": "x"}), 409, "Unknown topic config name: x"),
        (PREVIEW, body(COMPACT | {"name": "retention.ms"}), 409, "Not a number of type LONG"),
        (PREVIEW, body(COMPACT, COMPACT), 409, "duplicate config keys"),
        ("/topics/nope/preview", body(COMPACT), 404, "there is no topic nope"),
        ("/topics/plain/partitions/2/preview", body(COMPACT), 404, "has no partition 2"),
        (PREVIEW, " " * (CHANGES_BYTES_MAX + 1), 413, "send changes of at most"),
    ]
    for where, sent, status, sentence in wrong:
        found, answer = await broker.ask("POST", where, data=sent)
        assert (found, sentence in answer["error"]) == (status, True), answer


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\xff",
        b"{}",
        b'{"changes": 1}',
        b'{"changes": [1]}',
        b'{"changes": [{"name": 1, "operation": "set"}]}',
        b'{"changes": [{"name": "a", "operation": "set", "value": 1}]}',
        b'{"changes": [{"name": "a", "operation": ["set"], "value": "1"}]}',
        b"[" * 100_000,
    ],
)
def test_no_json_of_another_form_is_read(sent: bytes) -> None:
    with pytest.raises(CompactionRefused, match="send the changes as JSON"):
        parse_changes(sent)
