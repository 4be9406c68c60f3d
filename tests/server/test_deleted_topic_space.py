"""Deleting a topic while the broker runs frees its disk space and descriptors at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.fetch import FetchResponse
from storage.log.log import PartitionLog
from tests.harness.held_files import bytes_held, deleted_but_open, open_descriptors
from tests.harness.raw_client import decode_response
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    records_in,
    serving_broker,
)

VALUE_BYTES = 8 << 20


async def fill(served: ServedBroker, name: str) -> None:
    """Create a topic with one large record, and read it."""
    await served.create(name, max_message_bytes=str(2 * VALUE_BYTES))
    await served.produce(name, batch_of(1, value=bytes(VALUE_BYTES)))
    data = await served.fetch(name, 0, partition_max_bytes=1 << 30)
    assert len(records_in(data)) == 1


async def delete(served: ServedBroker, name: str) -> DeletableTopicResult:
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=60_000)
    (result,) = (await served.call(request, 6, DeleteTopicsResponse)).responses
    return result


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until the condition holds, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - a thread does it, and tells nobody
            await asyncio.sleep(0.01)


async def test_topics_made_and_deleted_again_and_again_leave_nothing_open_and_no_disk_in_use(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await fill(served, "first")
        assert (await delete(served, "first")).error_code == 0
        await until(lambda: bytes_held(tmp_path) < VALUE_BYTES)
        # A thread that syncs a directory has it open.
        await served.broker.topics._settling.finish()
        await served.broker.topics._deletion.finish()
        descriptors = open_descriptors(tmp_path)
        for name in ("one", "two", "three"):
            await fill(served, name)
            assert bytes_held(tmp_path) > VALUE_BYTES
            assert (await delete(served, name)).error_code == 0
            await until(lambda: bytes_held(tmp_path) < VALUE_BYTES)
            await until(lambda: open_descriptors(tmp_path) == descriptors)


async def test_fetch_that_is_being_sent_gets_all_of_a_deleted_topic_and_then_its_file_is_closed(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, socket_send_buffer_bytes="262144") as served:
        await fill(served, "read")
        slow = await served.connect(limit=1 << 14)
        request = fetch_request([("read", 0, 0)], partition_max_bytes=1 << 30, max_bytes=1 << 30)
        correlation_id = slow.send(request, 12)
        (log,) = served.broker.topics.logs()
        await until(lambda: log.segments[0].files._pins > 0)

        assert (await delete(served, "read")).error_code == 0

        await until(lambda: len(deleted_but_open(tmp_path)) == 1)
        await asyncio.wait_for(served.broker.topics._deletion.finish(), 10)
        assert len(deleted_but_open(tmp_path)) == 1
        frame = await slow.receive_frame()
        assert frame[:4] == correlation_id.to_bytes(4, "big")
        answer = only_fetched(decode_response(frame, FetchResponse, 12))
        (record,) = records_in(answer)
        assert record.value == bytes(VALUE_BYTES)
        await until(lambda: deleted_but_open(tmp_path) == [])
        assert bytes_held(tmp_path) < VALUE_BYTES


async def test_reader_that_leaves_in_the_middle_lets_go_of_a_deleted_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, socket_send_buffer_bytes="262144") as served:
        await fill(served, "read")
        slow = await served.connect(limit=1 << 14)
        slow.send(fetch_request([("read", 0, 0)], partition_max_bytes=1 << 30), 12)
        (log,) = served.broker.topics.logs()
        await until(lambda: log.segments[0].files._pins > 0)
        assert (await delete(served, "read")).error_code == 0

        slow.close()

        await until(lambda: deleted_but_open(tmp_path) == [])


async def test_log_of_a_deleted_topic_leaves_memory(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await fill(served, "gone")
        assert (await delete(served, "gone")).error_code == 0
        await until(lambda: not list(tmp_path.glob("gone*")))
        await until(lambda: not logs_in_memory("gone"))


def logs_in_memory(topic: str) -> list[PartitionLog]:
    gc.collect()
    logs = [each for each in gc.get_objects() if type(each) is PartitionLog]
    return [log for log in logs if log.topic_partition.topic == topic]
