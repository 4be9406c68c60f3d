"""The snapshots of a broker: made, refused, listed, dropped."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from protocol.wire.numbers import Offset
from server.snapshots import making
from server.snapshots import snapshots as snapshots_module
from server.snapshots.making import Making, Wanted
from server.snapshots.refusal import SnapshotRefused
from server.snapshots.snapshots import COUNT_SECONDS, Snapshots
from server.topics.topic import Topic
from storage.files.files import disk_error
from storage.log import linking
from storage.snapshots.descriptor import SnapshotDescriptor
from storage.snapshots.snapshot_files import SnapshotFiles
from tests.harness.connection_server import until
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker, serving_broker_on
from tests.harness.served_transactions import ServedTransactions
from tests.harness.snapshot_on_disk import (
    close,
    committed_values,
    opened_snapshot,
    values_in,
)


def snapshots_of(served: ServedBroker) -> Snapshots:
    assert served.broker.snapshots is not None
    return served.broker.snapshots


async def create(served: ServedBroker, *names: str) -> SnapshotDescriptor:
    made = await snapshots_of(served).create(Wanted(names=list(names) or None))
    assert made.descriptor is not None
    return made.descriptor


def topics_in(its: SnapshotDescriptor) -> list[str]:
    return [topic.name for topic in its.topics if not topic.name.startswith("__")]


def left_in(folder: Path, below: str = "snapshots") -> list[str]:
    directory = folder / below
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


class Paused:
    """Holds the thread of snapshots when it begins to link a log."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_there = threading.Event()
        self.may_go = threading.Event()
        link = linking._link

        def held(*args: object) -> object:
            self.is_there.set()
            assert self.may_go.wait(30)
            return link(*args)  # type: ignore[arg-type]

        patch.setattr(linking, "_link", held)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.is_there.wait, 30)


# ---------------------------------------------------------------- made


async def test_snapshot_has_all_topics_with_their_records_and_metadata(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        await served.create("users", 1, retention_ms="5000")
        await served.produce("orders", batch_of(3), partition=1)
        made = await snapshots_of(served).create(Wanted())
        its = made.descriptor
        assert its is not None
        assert topics_in(its) == ["orders", "users"]
        assert (its.cluster_id, its.node_id) == (
            served.broker.node.cluster_id,
            served.broker.node.node_id,
        )
        assert "retention.ms" in its.cluster["/topics/users"]
        assert made.partitions_count == sum(len(topic.partitions) for topic in its.topics)
        assert made.size_bytes == served.log("orders", 1).size_bytes > 0
        logs = opened_snapshot(its)
        assert values_in(logs["orders", 1]) == [b"value"] * 3
        assert values_in(logs["orders", 0]) == []
        close(logs)


async def test_snapshot_of_some_topics_has_these_and_the_coordinators(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        for name in ("orders", "users", "clicks"):
            await served.create(name)
        its = await create(served, "users", "orders", "users")
        assert topics_in(its) == ["orders", "users"]
        entries = {key for key in its.cluster if key.startswith("/topics/")}
        assert "/topics/clicks" not in entries
        assert {"/topics/orders", "/topics/users"} <= entries


async def test_snapshot_outlives_its_topics_and_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        await served.produce("orders", batch_of(2))
        its = await create(served)
        assert await served.broker.topics.delete(topic) is None
        await served.broker.topics._deletion.finish()
    async with serving_broker(tmp_path) as served:
        (found,) = await snapshots_of(served).all()
        assert found.descriptor == its
        logs = opened_snapshot(its)
        assert values_in(logs["orders", 0]) == [b"value"] * 2
        close(logs)


async def test_snapshot_spans_all_log_directories(tmp_path: Path) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    log_dirs = ",".join(map(str, dirs))
    async with serving_broker(tmp_path, log_dirs=log_dirs) as served:
        await served.create("orders", 4)
        for partition in range(4):
            await served.produce("orders", partition=partition)
        its = await create(served)
        (orders,) = [topic for topic in its.topics if topic.name == "orders"]
        assert len({each.directory for each in orders.partitions}) == 2
        assert [each.path for each in its.directories] == list(map(str, dirs))
        logs = opened_snapshot(its)
        assert [values_in(logs["orders", each]) for each in range(4)] == [[b"value"]] * 4
        close(logs)
        assert await snapshots_of(served).drop(its.id)
        assert [left_in(each) for each in dirs] == [[], []]


async def test_logs_go_on_as_usual_after_a_snapshot(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 1, cleanup_policy="compact")
        await served.produce("orders")
        await create(served)
        assert served.log("orders")._list.moment is None
        await served.produce("orders")
        assert served.log("orders").cleaning_view().last_stable_offset == 2


async def test_partition_that_is_added_before_the_moment_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Making._prepare

    async def grow_meanwhile(self: Making, topics: list[Topic]) -> None:
        await prepare(self, topics)
        if len(served.broker.topics.get("orders").partitions) == 1:  # type: ignore[union-attr]
            await served.broker.topics.add_partitions("orders", 2)
            await served.create("new")
            await served.produce("orders", partition=1)
            await served.produce("new")

    monkeypatch.setattr(Making, "_prepare", grow_meanwhile)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        its = await create(served)
        assert topics_in(its) == ["new", "orders"]
        logs = opened_snapshot(its)
        assert values_in(logs["orders", 1]) == values_in(logs["new", 0]) == [b"value"]
        close(logs)


async def delete(served: ServedBroker, name: str) -> None:
    topic = served.broker.topics.get(name)
    assert topic is not None
    assert await served.broker.topics.delete(topic) is None


def delete_orders_when_linked(patch: pytest.MonkeyPatch, served: ServedBroker) -> None:
    """Delete the topic `orders` after its first log was linked, before the second one is."""
    link, loop = linking._link, asyncio.get_running_loop()

    def link_and_delete(*args: Any) -> object:
        linked = link(*args)
        if "/orders." in args[-1] and served.broker.topics.get("orders") is not None:
            asyncio.run_coroutine_threadsafe(delete(served, "orders"), loop).result(30)
        return linked

    patch.setattr(linking, "_link", link_and_delete)


async def test_topic_that_is_deleted_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        await served.create("users")
        delete_orders_when_linked(monkeypatch, served)
        its = await create(served)
        assert topics_in(its) == ["users"]
        assert "/topics/orders" not in its.cluster
        assert not [
            name for name in left_in(tmp_path / "snapshots" / its.id, "") if "orders" in name
        ]
        close(opened_snapshot(its))


async def test_topic_that_is_deleted_meanwhile_is_unknown_if_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        delete_orders_when_linked(monkeypatch, served)
        with pytest.raises(SnapshotRefused, match="there is no topic orders") as refused:
            await create(served, "orders")
        assert refused.value.status == 404
        assert left_in(tmp_path) == []


async def test_log_that_is_truncated_all_the_time_has_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_all = Making._link_all

    async def truncate_first(self: Making, *args: object) -> object:
        log = served.log("orders")
        await asyncio.to_thread(log.truncate_fully_and_start_at, Offset(log.log_end_offset))
        return await link_all(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Making, "_link_all", truncate_first)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        with pytest.raises(
            SnapshotRefused, match=r"orders-0 was truncated .*: ask again"
        ) as refused:
            await create(served)
        assert refused.value.status == 409
        assert left_in(tmp_path) == []


async def test_topics_that_change_all_the_time_end_the_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Making._prepare

    async def change_meanwhile(self: Making, topics: list[Topic]) -> None:
        await prepare(self, topics)
        served.broker.topics.revision += 1

    monkeypatch.setattr(Making, "_prepare", change_meanwhile)
    async with serving_broker(tmp_path) as served:
        with pytest.raises(SnapshotRefused, match="all the time: ask again"):
            await create(served)
        assert left_in(tmp_path) == []


# ---------------------------------------------------------------- refused


async def test_unknown_topic_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        with pytest.raises(SnapshotRefused, match="there is no topic missing") as refused:
            await create(served, "missing")
        assert refused.value.status == 404
        assert left_in(tmp_path) == []


async def test_two_snapshots_are_not_made_at_a_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        first, second = await asyncio.gather(create(served), create(served), return_exceptions=True)
        assert isinstance(first, SnapshotDescriptor)
        assert isinstance(second, SnapshotRefused)
        assert second.status == 409
        await create(served)


async def test_log_that_is_out_of_service_is_refused_unless_it_is_not_asked_for(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.create("users")
        served.log("orders").go_offline("a test")
        with pytest.raises(
            SnapshotRefused, match=r"orders-0 is out of service \(a test\)"
        ) as refused:
            await create(served)
        assert refused.value.status == 409
        assert topics_in(await create(served, "users")) == ["users"]


@pytest.mark.parametrize(
    ("action", "number", "status"),
    [("open", errno.ENOSPC, 507), ("open", errno.EIO, 500)],
)
async def test_disk_that_fails_is_reported_and_leaves_nothing(
    tmp_path: Path, action: str, number: int, status: int
) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        files.faults.fail(action, number, path=".part")
        with pytest.raises(SnapshotRefused) as refused:
            await create(served)
        assert refused.value.status == status
        assert left_in(tmp_path) == []
        await served.produce("orders")
        await create(served)


async def test_creation_goes_on_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        task = asyncio.create_task(create(served))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (found,) = await snapshots_of(served).all()
        assert found.descriptor is not None


# ---------------------------------------------------------------- stopped


async def test_stop_in_the_middle_leaves_only_an_unfinished_one_that_the_next_start_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "LOGS_AT_A_TIME", 1)
    async with AsyncExitStack() as running:
        served = await running.enter_async_context(serving_broker(tmp_path))
        await served.create("orders", 10)
        for partition in range(10):
            await served.produce("orders", partition=partition)
        paused = Paused(monkeypatch)
        task = asyncio.create_task(create(served))
        await paused.reached()
        stop = asyncio.create_task(running.aclose())
        done, _ = await asyncio.wait([stop], timeout=0.1)
        assert not done
        paused.may_go.set()
        await stop
        with pytest.raises(SnapshotRefused, match="the broker is stopping"):
            await task
        (name,) = left_in(tmp_path)
        assert name.endswith(".part")
    async with serving_broker(tmp_path) as served:
        assert left_in(tmp_path) == []
        assert [log.log_end_offset for log in served.broker.topics.get("orders").logs()] == [1] * 10  # type: ignore[union-attr]


async def test_broker_starts_if_the_snapshots_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: SnapshotFiles) -> None:
        raise disk_error("list", "snapshots", OSError(errno.EIO, "Input/output error"))

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotFiles, "all", fail)
        async with serving_broker(tmp_path) as served:
            await served.create("orders")
            await served.produce("orders")
    assert "the snapshots cannot be read before the next start: list snapshots" in caplog.text


# ---------------------------------------------------------------- an earlier time


def at(ms: int, value: bytes) -> bytearray:
    """Returns a batch of one record with a key and a timestamp."""
    return build_batch([Record(offset=0, timestamp=ms, key=b"ada", value=value)])


async def create_at(served: ServedBroker, at_ms: int, *names: str) -> SnapshotDescriptor:
    wanted = Wanted(names=list(names) or None, at_ms=at_ms)
    made = await snapshots_of(served).create(wanted)
    assert made.descriptor is not None
    return made.descriptor


async def next_ms(served: ServedBroker) -> int:
    """Wait for the next millisecond of the broker's clock. Returns it, once it is over."""
    now_ms = served.broker.clock.now_ms()
    await until(lambda: served.broker.clock.now_ms() > now_ms + 1)
    return now_ms + 1


async def clean(served: ServedBroker, partition: int = 0) -> None:
    compaction = served.broker.compaction
    assert compaction is not None
    await compaction.pool.clean_now(served.log("orders", partition))


async def test_snapshot_of_an_earlier_time_has_what_the_topics_had(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2, cleanup_policy="compact")
        await served.create("users", cleanup_policy="compact")
        for ms, value in ((1000, b"1"), (2000, b"2"), (3000, b"3")):
            await served.produce("orders", at(ms, value), partition=1)
        await served.produce("users", at(5000, b"1"))
        its = await create_at(served, 3000)
        assert (topics_in(its), len(its.topics), its.at_ms) == (["orders", "users"], 2, 3000)
        logs = opened_snapshot(its)
        assert values_in(logs["orders", 1]) == [b"1", b"2"]
        assert values_in(logs["orders", 0]) == values_in(logs["users", 0]) == []
        close(logs)

        latest = await create_at(served, 6000, "users")
        logs = opened_snapshot(latest)
        assert (topics_in(latest), values_in(logs["users", 0])) == (["users"], [b"1"])
        close(logs)
        # The topics have what they had.
        assert served.log("orders", 1).log_end_offset == 3


async def test_nothing_of_a_transaction_that_was_open_then_is_in_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        await served.produce("orders", at(500, b"1"))
        transactions = ServedTransactions(served, "till", "orders")
        await transactions.begin()
        await transactions.send((b"bob", b"1"))
        await served.produce("orders", at(2000, b"2"))
        open_ms = await next_ms(served)
        await transactions.end(is_commit=True)
        logs = opened_snapshot(await create_at(served, open_ms))
        assert committed_values(logs["orders", 0]) == [b"1", b"2"]
        close(logs)
        logs = opened_snapshot(await create_at(served, await next_ms(served)))
        assert committed_values(logs["orders", 0]) == [b"1", b"1", b"2"]
        close(logs)


async def test_time_before_what_cleaning_has_used_is_refused_with_the_earliest_one(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, log_cleaner_enable="true") as served:
        await served.create("orders", 2, cleanup_policy="compact")
        for partition in (0, 1):
            for ms in (1000, 2000):
                await served.produce("orders", at(ms, b"%d" % ms), partition=partition)
            await clean(served, partition)
            await served.produce("orders", at(3000, b"3000"), partition=partition)
        with pytest.raises(SnapshotRefused) as refused:
            await create_at(served, 1500)
        assert refused.value.status == 409
        assert str(refused.value) == (
            "orders-0 was compacted by records up to 2, some of which came later (and 1 more partition):"
            " ask for these topics as of 1970-01-01T00:00:02.001+00:00 or later, or for others by name"
        )
        assert left_in(tmp_path) == []

        logs = opened_snapshot(await create_at(served, 2001))
        assert values_in(logs["orders", 0]) == values_in(logs["orders", 1]) == [b"2000"]
        close(logs)


async def test_pass_in_between_makes_the_next_attempt_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_obstacles", _seen_once(making._obstacles))
    async with serving_broker(tmp_path, log_cleaner_enable="true") as served:
        await served.create("orders", cleanup_policy="compact")
        for ms in (1000, 2000):
            await served.produce("orders", at(ms, b"%d" % ms))
        await clean(served)
        with pytest.raises(
            SnapshotRefused, match="was compacted by records up to 2, some of which came later: ask"
        ):
            await create_at(served, 1500)
        assert left_in(tmp_path) == []


def _seen_once(found: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, of which the first call finds nothing."""
    calls = list[object]()

    def late(*args: object) -> object:
        calls.append(args)
        return [] if len(calls) == 1 else found(*args)

    return late


async def test_time_of_which_everything_is_deleted_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for ms in (1000, 2000):
            await served.produce("orders", at(ms, b"%d" % ms))
        await asyncio.to_thread(served.log("orders").delete_records, Offset(1))
        with pytest.raises(SnapshotRefused, match="begins at 1: all that it had then is deleted"):
            await create_at(served, 1500)


async def test_topic_of_the_coordinators_has_no_earlier_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("__consumer_offsets")
        with pytest.raises(SnapshotRefused, match="is the broker's own") as refused:
            await create_at(served, 1000, "__consumer_offsets")
    assert refused.value.status == 400


async def test_no_earliest_time_is_named_that_lies_in_the_future(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_cleaner_enable="true") as served:
        await served.create("orders", cleanup_policy="compact")
        soon_ms = served.broker.clock.now_ms() + 600_000
        for ms in (1000, soon_ms):
            await served.produce("orders", at(ms, b"1"))
        await clean(served)
        with pytest.raises(SnapshotRefused, match=r": ask for other topics by name, or later$"):
            await create_at(served, 1500)


async def test_time_to_come_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        with pytest.raises(SnapshotRefused, match="lies in the future") as refused:
            await create_at(served, served.broker.clock.now_ms() + 60_000)
    assert refused.value.status == 400


# ---------------------------------------------------------------- many partitions


async def test_loop_is_not_held_by_a_snapshot_of_many_partitions(tmp_path: Path) -> None:
    """The loop of these tests measures it."""
    async with serving_broker(tmp_path) as served:
        for number in range(2):
            await served.create(f"many-{number}", 1000)
        for partition in range(0, 1000, 50):
            await served.produce("many-0", partition=partition)
        made = await snapshots_of(served).create(Wanted())
        assert made.partitions_count >= 2000
        assert len(await snapshots_of(served).all()) == 1
        assert await snapshots_of(served).drop(made.id)
        assert left_in(tmp_path) == []


# ---------------------------------------------------------------- pinned


async def test_bytes_that_only_a_snapshot_holds_are_counted_when_one_is_made_or_dropped(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(10, value=b"x" * 1000))
        first = await create(served)
        snapshots = snapshots_of(served)
        own = snapshots.pinned.total
        assert (snapshots.facts().count, snapshots.facts().size_bytes > 10_000) == (1, True)
        assert own == snapshots.pinned.alone[first.id] < 10_000
        await asyncio.to_thread(served.log("orders").delete_records, Offset(10))
        assert snapshots.pinned.total == own
        second = await create(served)
        assert snapshots.pinned.alone[first.id] > 10_000
        assert snapshots.facts().pinned_bytes == sum(snapshots.pinned.alone.values())
        await snapshots.drop(first.id)
        assert set(snapshots.pinned.alone) == {second.id}
        await snapshots.drop(second.id)
        assert (snapshots.facts().count, snapshots.pinned.total) == (0, 0)


async def test_count_is_repeated_at_most_once_a_minute_and_never_takes_much_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, now_s = list[int](), [0.0]
    pinned = SnapshotFiles.pinned

    def counted(self: SnapshotFiles) -> object:
        counts.append(1)
        now_s[0] += 10
        return pinned(self)

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await create(served)
        monkeypatch.setattr(SnapshotFiles, "pinned", counted)
        monkeypatch.setattr(snapshots_module, "monotonic", lambda: now_s[0])
        snapshots = snapshots_of(served)
        await snapshots._count()
        assert snapshots._held.took_s == 10
        for later_s, expected in ((COUNT_SECONDS, 1), (439, 1), (1, 2)):
            now_s[0] += later_s
            await snapshots._count_if_due()
            assert len(counts) == expected


async def test_disk_that_fails_during_a_count_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        its = await create(served)

        def fail(_: SnapshotFiles) -> None:
            raise disk_error("stat", "snapshots", OSError(errno.EIO, "Input/output error"))

        monkeypatch.setattr(SnapshotFiles, "pinned", fail)
        assert await snapshots_of(served).drop(its.id)
        assert "cannot count what snapshots hold" in caplog.text
