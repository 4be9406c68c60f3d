"""A whole broker with real clients and processes: its start, its stop, and a failing disk."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.broker import Broker
from server.config.config import BrokerConfig
from server.net.listener import ListenError
from server.runtime.clock import SystemClock
from storage.files.errors import DirectoryLocked, SyncFailed
from storage.files.local_files import LocalFileSystem
from storage.files.sync_threads import SyncThreads
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.client_record import KeyedRecord
from tests.harness.clients import PYTHON_CLIENT_NAMES, ConfluentClient, client, create_topic
from tests.harness.raw_client import encode_request
from tests.harness.served_broker import (
    batch_of,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
    serving_broker,
)

RECORDS: list[KeyedRecord] = [(b"k%d" % (n % 10), b"value %d" % n) for n in range(100)]
SERVER_MODULES = "cli.main, cli.serve, server.run"
SLOW_LIBRARIES = {"aiohttp", "typer", "rich", "prometheus_client", "cramjam", "click"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that do not stop it."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


def get(process: BrokerProcess, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", process.http_port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def wait_for(what: str, is_so: object) -> None:
    assert callable(is_so)
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def values_of(process: BrokerProcess, topic: str) -> list[bytes | None]:
    records = ConfluentClient().consume(process.bootstrap_servers, [topic])
    return [value for *_, value in records]


# Clients.


@pytest.mark.parametrize("name", PYTHON_CLIENT_NAMES)
def test_a_client_reads_what_it_produced(name: str, process: BrokerProcess) -> None:
    topic = f"roundtrip-{name}"
    kafka = client(name)
    create_topic(process.bootstrap_servers, topic)

    kafka.produce(process.bootstrap_servers, {topic: "none"}, RECORDS)
    found = list(kafka.consume(process.bootstrap_servers, [topic]))

    assert [(key, value) for *_, key, value in found] == RECORDS
    assert [offset for _, _, offset, *_ in found] == list(range(len(RECORDS)))


def test_a_topic_is_created_when_it_is_first_produced_to(process: BrokerProcess) -> None:
    ConfluentClient().produce(process.bootstrap_servers, {"on-demand": "none"}, RECORDS[:3])

    assert values_of(process, "on-demand") == [value for _, value in RECORDS[:3]]


def test_an_idle_compacted_topic_is_cleaned_to_its_last_values(tmp_path: Path) -> None:
    """In Kafka, this never happens without traffic (KAFKA-20664)."""
    with BrokerProcess(tmp_path, {"log.cleaner.backoff.ms": 50}) as process:
        settings = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
        }
        create_topic(process.bootstrap_servers, "table", config=settings)
        ConfluentClient().produce(process.bootstrap_servers, {"table": "none"}, RECORDS)

        # No client produces now: the clock alone rolls the segment and triggers its cleaning.
        wait_for("a cleaning pass", lambda: completed_passes(process) >= 1)
        wait_for("the last values", lambda: len(values_of(process, "table")) == 10)

        assert sorted(values_of(process, "table")) == sorted(  # type: ignore[type-var]
            dict(RECORDS).values()
        )


def completed_passes(process: BrokerProcess) -> float:
    return sum(samples(process.metrics(), "kompakt_cleaner_passes_total", result="completed"))


# Health checks and metrics for supervisors.


def test_metrics_count_what_clients_did(process: BrokerProcess) -> None:
    create_topic(process.bootstrap_servers, "counted", partitions=2)
    ConfluentClient().produce(process.bootstrap_servers, {"counted": "none"}, RECORDS)
    values_of(process, "counted")
    time.sleep(1.1)  # the broker caches the text of a scrape for a second

    text = process.metrics()

    def total(name: str) -> float:
        return sum(samples(text, name, topic="counted"))

    assert total("kafka_server_brokertopicmetrics_messagesin_total") == len(RECORDS)
    assert total("kafka_server_brokertopicmetrics_bytesin_total") > 1_000
    assert total("kafka_server_brokertopicmetrics_bytesout_total") > 1_000
    assert total("kafka_log_log_logendoffset") == len(RECORDS)
    assert total("kafka_topic_partition_current_offset") == len(RECORDS)
    assert total("kafka_log_log_numlogsegments") == 2
    assert total("kafka_topic_partitions") == 2
    assert sum(samples(text, "kompakt_request_seconds_count", api="Fetch")) > 0
    assert sum(samples(text, "kompakt_connections_opened_total")) > 0
    assert samples(text, "kompakt_ready") == [1]


def test_a_serving_broker_is_live_and_ready(process: BrokerProcess) -> None:
    assert get(process, "/health/live") == (200, "alive\n")
    assert get(process, "/health/ready") == (200, "ready\n")


def test_a_start_logs_where_the_data_is_and_both_addresses_of_a_listener(tmp_path: Path) -> None:
    told = {"advertised.listeners": "PLAINTEXT://broker.example:9092"}
    with BrokerProcess(tmp_path, told) as process:
        assert f"starts: node 1, data in {process.data_dir}\n" in process.log_path.read_text()
        line = f"listening on PLAINTEXT://127.0.0.1:{process.port}, advertised as"
        assert f"{line} PLAINTEXT://broker.example:9092" in process.log_path.read_text()


# Stopping.


def test_sigterm_keeps_everything_and_ends_with_0(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    create_topic(process.bootstrap_servers, "kept", config={"cleanup.policy": "compact"})
    ConfluentClient().produce(process.bootstrap_servers, {"kept": "none"}, RECORDS)

    assert process.stop() == 0
    assert (process.data_dir / ".clean-shutdown").exists()
    process.start()

    assert not (process.data_dir / ".clean-shutdown").exists()
    assert values_of(process, "kept") == [value for _, value in RECORDS]
    assert process.stop() == 0


def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    ConfluentClient().produce(process.bootstrap_servers, {"kept": "none"}, RECORDS)

    process.kill()
    with process:
        assert values_of(process, "kept") == [value for _, value in RECORDS]


def test_a_failed_start_after_a_crash_does_not_count_as_a_clean_stop(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    ConfluentClient().produce(process.bootstrap_servers, {"kept": "none"}, RECORDS)
    process.kill()

    metadata = next((process.data_dir / "metadata").glob("*.replog"))
    sound = metadata.read_bytes()
    metadata.write_bytes(sound.replace(b"/topics/kept", b"/topics/kep_"))
    done = subprocess.run(process.command(), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "is corrupt at byte" in done.stderr.splitlines()[-1]
    assert not (process.data_dir / ".clean-shutdown").exists()
    metadata.write_bytes(sound)
    with process:
        assert values_of(process, "kept") == [value for _, value in RECORDS]


def test_a_locked_directory_is_one_line_and_ends_with_1(process: BrokerProcess) -> None:
    overrides = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={process.data_dir}")
    command = [sys.executable, "-m", "cli", "serve", "--override=http.listener="]
    done = subprocess.run(
        [*command, *(f"--override={each}" for each in overrides)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "is in use by another process" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_stop_ends_long_polls_and_answers_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("quiet")
        client = await served.connect()
        wait = fetch_request([("quiet", 0, 0)], max_wait_ms=60_000)
        waiting = asyncio.ensure_future(client.call(wait, 12, FetchResponse))
        async with asyncio.timeout(30):
            while served.broker.fetch_waiters.parked_count == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        started = time.monotonic()

        await served.broker.stop()

        answer = only_fetched(await waiting)
        assert answer.error_code == ErrorCode.NONE
        assert time.monotonic() - started < 30
        assert served.broker.not_ready == "stopping"


async def test_stopping_again_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.stop()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    # The first request alone would take longer than `process.stop` waits.
    process = BrokerProcess(tmp_path, {"controlled.shutdown.timeout.ms": 120_000})
    process.start()
    big = [(b"k", b"v" * 500_000)] * 40
    ConfluentClient().produce(process.bootstrap_servers, {"big": "none"}, big)
    request = fetch_request([("big", 0, 0)], partition_max_bytes=1 << 25, max_bytes=1 << 25)

    # A client that requests 20 MB and reads nothing delays the first stop.
    with socket.create_connection(("127.0.0.1", process.port)) as stuck:
        payload = encode_request(request, 12, 1)
        stuck.sendall(struct.pack(">i", len(payload)) + payload)
        # The first bytes of the answer have arrived, and the broker waits to send the others.
        assert stuck.recv(1, socket.MSG_PEEK)
        subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
        wait_for("the stop", lambda: "stopping" in get(process, "/health/ready")[1])
        code = process.stop()

    assert code == 128 + signal.SIGTERM
    with process:
        assert len(values_of(process, "big")) == len(big)


# Starting.


def test_modules_that_clients_do_not_need_are_not_imported_before_the_listener() -> None:
    program = f"import {SERVER_MODULES}, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    assert not SLOW_LIBRARIES & set(json.loads(done.stdout))


async def test_a_port_in_use_fails_the_start_and_gives_everything_back(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "first") as served:
        port = served.broker.addresses["PLAINTEXT"][1]
        with pytest.raises(ListenError, match="Address already in use"):
            async with serving_broker(
                tmp_path / "second", listeners=f"PLAINTEXT://127.0.0.1:{port}"
            ):
                pass

    async with serving_broker(tmp_path / "second"):
        pass


async def test_an_http_port_in_use_fails_the_start_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "first", http_listener="127.0.0.1:0") as served:
        port = served.broker.http_port
        with pytest.raises(ListenError, match="cannot listen on http://127"):
            async with serving_broker(tmp_path / "second", http_listener=f"127.0.0.1:{port}"):
                pass


async def test_a_directory_in_use_fails_the_start(tmp_path: Path) -> None:
    async with serving_broker(tmp_path):
        with pytest.raises(DirectoryLocked):
            async with serving_broker(tmp_path):
                pass


# A failing disk.


async def test_a_failed_sync_is_never_acknowledged_and_ends_the_only_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders")

        def fail(file: object) -> None:
            raise SyncFailed("sync", str(tmp_path), 5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr("storage.files.local_files.LocalFile.sync", fail)
            patched.setattr("storage.files.local_files.LocalFile.sync_descriptor", lambda _: None)
            request = produce_request("orders", batch_of(1))
            answer = only_produced(await served.call(request, 9, ProduceResponse))

        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.wait_for(served.broker.wait_failed(), 30)
        assert served.broker.failure is not None
        assert "offline" in served.broker.failure

    assert not is_clean(tmp_path)


def is_clean(directory: Path) -> bool:
    return (directory / ".clean-shutdown").exists()


async def test_the_working_one_of_two_directories_keeps_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving_broker(first, log_dirs=f"{first},{second}") as served:
        await served.create("orders", 2)
        on_second = next(
            log.topic_partition.partition
            for log in served.broker.topics.logs()
            if log.directory.startswith(str(second))
        )

        sync = "storage.files.local_files.LocalFile.sync"
        monkeypatch.setattr(sync, failing_below(second))
        monkeypatch.setattr("storage.files.local_files.LocalFile.sync_descriptor", lambda _: None)
        request = produce_request("orders", batch_of(1), on_second)
        answer = only_produced(await served.call(request, 9, ProduceResponse))

        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await served.produce("orders", partition=1 - on_second)
        assert served.broker.failure is None
        monkeypatch.undo()

    assert is_clean(first)
    assert not is_clean(second)


async def test_a_failed_sync_in_a_thread_is_never_acknowledged_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenDisk(SyncThreads):
        def errors_of_round(self) -> list[int]:
            return [errno.EIO for _ in super().errors_of_round()]

    monkeypatch.setattr("storage.log.sync_rounds.SyncThreads", BrokenDisk)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        log = served.log("orders")
        log.sync()  # leaves no work that involves more than one file

        request = produce_request("orders", batch_of(1))
        answer = only_produced(await served.call(request, 9, ProduceResponse))

        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.high_watermark == 0
        await asyncio.wait_for(served.broker.wait_failed(), 30)


def failing_below(directory: Path) -> object:
    from storage.files.local_files import LocalFile

    sound = LocalFile.sync

    def sync(file: LocalFile) -> None:
        if file.path.startswith(str(directory)):
            raise SyncFailed("sync", file.path, 5, "Input/output error")
        sound(file)

    return sync


async def test_an_unstarted_broker_can_be_stopped(tmp_path: Path) -> None:
    config = BrokerConfig.from_texts({"log.dirs": str(tmp_path), "http.listener": ""})
    broker = Broker(config, files=LocalFileSystem(), clock=SystemClock())

    await broker.stop()

    assert broker.not_ready == "stopping"


async def test_readiness_shows_the_progress_of_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
    said: list[str | None] = []
    original = LogDirectory.open_log

    def watched(*arguments: Any) -> PartitionLog:
        said.append(broker.not_ready)
        return original(*arguments)

    monkeypatch.setattr(LogDirectory, "open_log", watched)
    config = BrokerConfig.from_texts(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "http.listener": "",
            "log.dirs": str(served.broker.directories[0].path),
        }
    )
    broker = Broker(config, files=LocalFileSystem(), clock=SystemClock())
    assert broker.not_ready == "starting"
    await broker.start()
    assert said == ["starting: 0 of 1 logs are open, 0 MiB were scanned"]
    assert broker.not_ready is None
    await broker.stop()
