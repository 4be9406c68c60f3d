"""How clients and operators experience a failing disk: docs/design/log-engine.md, "When the disk fails".

The broker has two log directories, the first with the metadata. The disk is real, and fails where the
test wants it to.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.wire.error_codes import ErrorCode
from server.http import broker_facts
from server.topics.topic import OfflineLog, Topic
from storage.files.errors import DamagedFile, DiskError, SyncFailed
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.faults import FOR_EVER
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
    records_in,
    serving_broker_on,
)

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class Machine:
    """Two log directories with a broker, and the topic "orders" with a partition in each."""

    def __init__(self, path: Path) -> None:
        self.first, self.second = path / "first", path / "second"
        self.files = FaultyFileSystem()
        self.faults = self.files.faults
        self.served: ServedBroker
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the broker, and check that all acknowledged records are there."""
        dirs = f"{self.first},{self.second}"
        async with serving_broker_on(self.files, self.first, log_dirs=dirs) as self.served:
            if self.served.broker.topics.get("orders") is None:
                await self.served.create("orders", 2)
            yield

    @property
    def topic(self) -> Topic:
        topic = self.served.broker.topics.get("orders")
        assert topic is not None
        return topic

    @property
    def on_second(self) -> int:
        """Returns the number of the partition in the second directory."""
        (number,) = [
            log.topic_partition.partition
            for log in self.topic.partitions
            if isinstance(log, OfflineLog) or log.directory.startswith(str(self.second))
        ]
        return number

    async def produce(self, partition: int, value: bytes, acks: int = -1) -> ErrorCode:
        request = produce_request("orders", batch_of(1, value=value), partition, acks=acks)
        answer = only_produced(await self.served.call(request, 9, ProduceResponse))
        if answer.error_code == ErrorCode.NONE and acks == -1:
            self.acknowledged[partition].append(value)
        return ErrorCode(answer.error_code)

    async def fetch(self, partition: int) -> PartitionData:
        request = fetch_request([("orders", partition, 0)])
        return only_fetched(await self.served.call(request, 12, FetchResponse))

    async def values(self, partition: int) -> list[bytes | None]:
        answer = await self.fetch(partition)
        assert answer.error_code == ErrorCode.NONE
        return [record.value for record in records_in(answer)]

    async def check_that_nothing_is_lost(self) -> None:
        for partition, values in self.acknowledged.items():
            there = await self.values(partition)
            assert [value for value in there if value in values] == values

    async def check_that_only_the_first_serves(self) -> None:
        bad, good = self.on_second, 1 - self.on_second
        assert await self.produce(bad, b"late") is STORAGE_ERROR
        assert (await self.fetch(bad)).error_code == STORAGE_ERROR
        assert await self.produce(good, b"other directory") is ErrorCode.NONE
        assert await self.values(good)
        facts = broker_facts(self.served.broker)
        assert (facts.directories_offline, facts.partitions_offline) == (1, 1)
        assert facts.is_ready
        assert self.served.broker.failure is None


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# A full disk, and failing writes.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_failed_write_is_answered_with_an_error_and_the_next_one_may_work(
    machine: Machine, number: int, acks: int
) -> None:
    async with machine.serving():
        assert await machine.produce(0, b"before") is ErrorCode.NONE
        machine.faults.fail("append to", number, path="/orders", times=3)
        for _ in range(3):
            assert await machine.produce(0, b"refused", acks) is STORAGE_ERROR
            assert await machine.values(0) == [b"before"]
        assert broker_facts(machine.served.broker).directories_offline == 0
        assert await machine.produce(0, b"after") is ErrorCode.NONE
        assert await machine.values(0) == [b"before", b"after"]

    async with machine.serving():
        assert await machine.values(0) == [b"before", b"after"]


async def test_a_batch_for_a_full_disk_does_not_fail_one_for_another_disk(
    machine: Machine,
) -> None:
    async with machine.serving():
        machine.faults.fail("append to", errno.ENOSPC, path=str(machine.second))
        view = memoryview(batch_of(1))
        data = tuple(PartitionProduceData(index=index, records=view) for index in (0, 1))
        topics = (TopicProduceData(name="orders", partition_data=data),)
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)

        response = await machine.served.call(request, 9, ProduceResponse)

        answers = {each.index: each for each in response.responses[0].partition_responses}
        assert answers[machine.on_second].error_code == STORAGE_ERROR
        assert answers[1 - machine.on_second].error_code == ErrorCode.NONE


# A failing sync.


async def test_a_failed_sync_takes_only_its_directory_offline(machine: Machine) -> None:
    async with machine.serving():
        bad = machine.on_second
        assert await machine.produce(bad, b"safe") is ErrorCode.NONE
        machine.faults.fail("sync", errno.EIO, path=str(machine.second))

        assert await machine.produce(bad, b"unsafe") is STORAGE_ERROR

        machine.faults.heal()
        await machine.check_that_only_the_first_serves()

    async with machine.serving():
        await machine.check_that_nothing_is_lost()
        assert await machine.produce(machine.on_second, b"again") is ErrorCode.NONE


async def test_after_a_failed_sync_no_producer_gets_a_false_acknowledgement(
    machine: Machine,
) -> None:
    async with machine.serving():
        bad = machine.on_second
        machine.faults.fail("sync", errno.EIO, path=str(machine.second))
        codes = await asyncio.gather(*(machine.produce(bad, b"%d" % n) for n in range(10)))
        assert set(codes) == {STORAGE_ERROR}
        assert machine.acknowledged[bad] == []


async def test_a_metadata_store_that_cannot_sync_ends_the_broker(machine: Machine) -> None:
    async with machine.serving():
        machine.faults.fail("sync", errno.EIO, path="/metadata/")

        with pytest.raises(SyncFailed):
            await machine.served.broker.topics.create("late")

        await asyncio.wait_for(machine.served.broker.wait_failed(), 30)
        assert str(machine.first) in str(machine.served.broker.failure)
        machine.faults.heal()

    async with machine.serving():
        # A creation refused like this may have happened completely, or not at all.
        late = await machine.served.broker.topics.create_if_absent("late")
        assert isinstance(late, Topic)
        assert all(log.offline_reason is None for log in late.partitions)


# Failing reads.


async def test_a_failed_read_is_answered_with_an_error_and_hides_nothing_else(
    machine: Machine,
) -> None:
    async with machine.serving():
        for value in (b"one", b"two"):
            assert await machine.produce(0, value) is ErrorCode.NONE
        machine.faults.fail("read", errno.EIO, path=".log", times=FOR_EVER)

        assert (await machine.fetch(0)).error_code == STORAGE_ERROR
        assert await offset_for_time(machine, 0) == STORAGE_ERROR
        assert await machine.produce(0, b"three") is ErrorCode.NONE

        machine.faults.heal()
        assert await machine.values(0) == [b"one", b"two", b"three"]
        assert await offset_for_time(machine, 0) == ErrorCode.NONE


async def offset_for_time(machine: Machine, partition: int) -> int:
    partitions = (ListOffsetsPartition(partition_index=partition, timestamp=1),)
    topics = (ListOffsetsTopic(name="orders", partitions=partitions),)
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    response = await machine.served.call(request, 5, ListOffsetsResponse)
    return response.topics[0].partitions[0].error_code


async def test_a_client_that_hammers_a_failing_partition_does_not_fill_the_log(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine.serving():
        assert await machine.produce(0, b"one") is ErrorCode.NONE
        machine.faults.fail("read", errno.EIO, path=".log", times=FOR_EVER)
        with caplog.at_level(logging.WARNING, "server.dispatch"):
            for _ in range(30):
                assert (await machine.fetch(0)).error_code == STORAGE_ERROR
        machine.faults.heal()

    said = [each for each in caplog.records if "Input/output error" in each.getMessage()]
    assert len(said) == 1


# A directory that accepts no new names, or has vanished.


async def test_a_directory_that_becomes_read_only_goes_offline_alone(machine: Machine) -> None:
    async with machine.serving():
        bad = machine.on_second
        assert await machine.produce(bad, b"safe") is ErrorCode.NONE
        for action in ("append to", "open", "write", "rename", "unlink"):
            machine.faults.fail(action, errno.EROFS, path=str(machine.second), times=FOR_EVER)
        assert await machine.produce(bad, b"refused") is STORAGE_ERROR
        assert await machine.values(bad) == [b"safe"]

        with pytest.raises(DiskError):
            machine.served.log("orders", bad).roll(0)

        await machine.check_that_only_the_first_serves()
        machine.faults.heal()

    async with machine.serving():
        await machine.check_that_nothing_is_lost()


async def test_a_directory_that_vanishes_goes_offline_alone(machine: Machine) -> None:
    aside = machine.second.with_name("aside")
    async with machine.serving():
        bad = machine.on_second
        assert await machine.produce(bad, b"safe") is ErrorCode.NONE
        machine.second.rename(aside)
        with pytest.raises(DiskError):
            machine.served.log("orders", bad).roll(0)
        await machine.check_that_only_the_first_serves()

    aside.rename(machine.second)
    async with machine.serving():
        await machine.check_that_nothing_is_lost()


# Starting.


async def test_a_directory_that_is_a_file_at_the_start_is_left_out(machine: Machine) -> None:
    aside = machine.second.with_name("aside")
    async with machine.serving():
        assert await machine.produce(machine.on_second, b"safe") is ErrorCode.NONE

    machine.second.rename(aside)
    machine.second.write_text("not a directory")
    async with machine.serving():
        await machine.check_that_only_the_first_serves()
        assert "offline" in str(machine.topic.partitions[machine.on_second].offline_reason)

    machine.second.unlink()
    aside.rename(machine.second)
    async with machine.serving():
        await machine.check_that_nothing_is_lost()


async def test_a_topic_deleted_while_a_directory_is_offline_stays_deleted_when_it_returns(
    machine: Machine,
) -> None:
    aside = machine.second.with_name("aside")
    async with machine.serving():
        assert await machine.produce(machine.on_second, b"safe") is ErrorCode.NONE
    machine.second.rename(aside)
    machine.second.write_text("not a directory")
    async with machine.serving():
        assert await machine.served.broker.topics.delete(machine.topic) is None

    machine.second.unlink()
    aside.rename(machine.second)
    assert list(machine.second.glob("orders.*"))
    async with machine.serving():
        pass
    left = [path for path in machine.second.glob("orders.*") if any(path.glob("*/*"))]
    assert len(left) == 1, "the new topic of that name, and not the old one"


@pytest.mark.parametrize(
    ("name", "content"),
    [("hash.key", b"short"), ("meta.properties", b"\xff\xfe"), ("start-counter", b"many\n")],
)
async def test_a_damaged_file_of_a_directory_takes_that_directory_out(
    machine: Machine, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine.serving():
        assert await machine.produce(machine.on_second, b"safe") is ErrorCode.NONE
    path = machine.second / name
    sound = path.read_bytes()
    path.write_bytes(content)

    async with machine.serving():
        await machine.check_that_only_the_first_serves()
    assert any(f"{path} is damaged" in record.getMessage() for record in caplog.records)

    path.write_bytes(sound)
    async with machine.serving():
        await machine.check_that_nothing_is_lost()


@pytest.mark.parametrize("name", ["hash.key", "meta.properties", "start-counter"])
async def test_a_damaged_file_of_the_directory_with_the_metadata_refuses_the_start(
    machine: Machine, name: str
) -> None:
    async with machine.serving():
        pass
    (machine.first / name).write_bytes(b"\xff")
    with pytest.raises(DamagedFile, match=name):
        async with machine.serving():
            pass


async def test_a_broker_without_online_directories_ends_with_a_sentence(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        files.faults.fail("sync", errno.EIO)
        request = produce_request("orders", batch_of(1))
        answer = only_produced(await served.call(request, 9, ProduceResponse))
        assert answer.error_code == STORAGE_ERROR
        await asyncio.wait_for(served.broker.wait_failed(), 30)
        assert str(tmp_path) in str(served.broker.failure)


# A whole process.


def test_a_broker_whose_second_directory_vanishes_serves_on_and_finds_it_again(
    tmp_path: Path,
) -> None:
    second, aside = tmp_path / "second", tmp_path / "aside"
    kafka = ConfluentClient()
    records = [(b"k%d" % number, bytes(100)) for number in range(200)]
    with BrokerProcess(tmp_path, {"log.dirs": f"{tmp_path / 'data'},{second}"}) as process:
        servers = process.bootstrap_servers
        create_topic(servers, "orders", partitions=2)
        kafka.produce(servers, {"orders": "none"}, records)
        # A stop waits until the new logs are settled; else that could be what finds the directory gone.
        process.restart()
        second.rename(aside)

        with pytest.raises(KafkaException, match="the log directory is gone"):
            create_topic(servers, "too-late", partitions=2)
        create_topic(servers, "later", partitions=2)
        kafka.produce(servers, {"later": "none"}, records)

        assert not second.exists()
        offline = samples(process.metrics(), "kafka_log_logmanager_offlinelogdirectorycount")
        assert offline == [1]
    aside.rename(second)
    with process:
        there = kafka.consume(process.bootstrap_servers, ["orders", "later"])
        assert len(list(there)) == 2 * len(records)
