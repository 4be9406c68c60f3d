"""The history of passes: in a running broker, across restarts, over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner.pacing.quarantine import Quarantined
from cli.commands import run_command
from cli.compact.history import print_history
from server.admin.pass_history import HistoryProbe
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOG
from storage.formats.topic_partition import TopicPartition
from storage.ledger.pass_history import PassHistory
from tests.cleaner.rules.test_expiry_report import REPORT as SWEEP
from tests.cleaner.rules.test_report import REPORT
from tests.harness.blocked_sidecar import block_sidecar
from tests.harness.broker_process import BrokerProcess, scrape
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.steered_broker import SteeredBroker, steered_broker

Json = dict[str, Any]


class OwnClock:
    """A fake clock that moves wall time and monotonic time together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def run_at_once(job: Callable[[], None]) -> None:
    job()


def probe_in(path: Path, clock: OwnClock) -> tuple[HistoryProbe, PassHistory]:
    history = PassHistory(LocalFileSystem(), str(path), bytes_max=1 << 20)
    return HistoryProbe(history, background=run_at_once, clock=clock), history


def test_a_completed_pass_is_kept_with_all_that_its_report_says(tmp_path: Path) -> None:
    clock = OwnClock()
    probe, history = probe_in(tmp_path, clock)

    probe.pass_completed(REPORT)

    (entry,) = history.read(limit=10)
    assert (entry["result"], entry["topic"], entry["partition"]) == ("completed", "orders", 3)
    assert (entry["reason"], entry["ended_ms"]) == ("DIRTY", clock.now_ms())
    assert (entry["bytes_before"], entry["bytes_after"]) == (412_000_000, 37_000_000)
    assert entry["records_by_verdict"] == REPORT.records_by_verdict
    assert entry["seconds"] == REPORT.seconds
    assert "group_reports" not in entry


def test_a_pass_is_read_as_soon_as_it_has_ended_although_nothing_is_written_yet(
    tmp_path: Path,
) -> None:
    history = PassHistory(LocalFileSystem(), str(tmp_path), bytes_max=1 << 20)
    probe = HistoryProbe(history, background=lambda job: None, clock=OwnClock())

    probe.pass_completed(REPORT)

    (entry,) = history.read(limit=10)
    assert entry["result"] == "completed"


def test_a_sweep_is_kept_if_it_has_appended_tombstones_or_met_unreadable_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe, history = probe_in(tmp_path, OwnClock())

    probe.swept(replace(SWEEP, tombstones=0, unreadable=0))
    assert history.read(limit=10) == []

    probe.swept(SWEEP)
    (entry,) = history.read(limit=10)
    assert (entry["result"], entry["topic"], entry["tombstones"]) == ("swept", "t", 1)
    assert "ranges" not in entry
    print_history([entry], None)
    assert "t-0 swept: read 2 expired values and appended 1 tombstone" in capsys.readouterr().out


def test_a_pass_that_was_stopped_is_kept_with_the_time_it_took_and_why(tmp_path: Path) -> None:
    clock = OwnClock()
    probe, history = probe_in(tmp_path, clock)

    probe.pass_started("orders", 3)
    clock.seconds += 2.5
    probe.pass_aborted("orders", 3, "the log was truncated")

    (entry,) = history.read(limit=10)
    assert (entry["result"], entry["seconds"]) == ("aborted", 2.5)
    assert entry["error"] == "the log was truncated"


def test_a_failed_pass_is_kept_with_its_reason_and_how_long_its_partition_rests(
    tmp_path: Path,
) -> None:
    probe, history = probe_in(tmp_path, OwnClock())

    probe.quarantined(
        Quarantined(
            topic_partition=TopicPartition("orders", 3),
            reason="batch at 61 is damaged",
            kind="corrupt_batch",
            failures=2,
            retry_at=60.0,
            rest_seconds=60.0,
        )
    )

    (entry,) = history.read(limit=10)
    assert (entry["result"], entry["kind"]) == ("failed", "corrupt_batch")
    assert (entry["failures"], entry["quarantined_seconds"]) == (2, 60.0)
    assert entry["error"] == "batch at 61 is damaged"


# ---------------------------------------------------------------- a broker


async def history_of(broker: SteeredBroker, query: str = "") -> list[Json]:
    return list((await broker.get(f"/history{query}"))["passes"])


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


async def test_damaged_segments_are_told_with_the_pass_that_cleaned_around_them(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        log = broker.served.log("orders")
        log.roll(0)
        damage(Path(log.segments[0].path(LOG)))
        await broker.finished(await broker.post("/topics/orders/now"))
        (entry,) = await history_of(broker)

    assert entry["result"] == "completed"
    assert entry["held_by"] == "the damaged segment with offsets [0, 3)"
    (fence,) = entry["fences"]
    assert (fence["base_offset"], fence["end_offset"]) == (0, 3)
    assert "CRC" in fence["reason"]


async def fill(broker: SteeredBroker) -> None:
    """Run one pass over each of two partitions, and one that fails over another topic."""
    await broker.served.create("orders", 2, cleanup_policy="compact")
    await broker.served.create("broken-1", cleanup_policy="compact")
    for topic in ("orders", "broken-1"):
        await broker.produce_dirty(topic)
    log = broker.served.log("broken-1")
    log.roll(0)
    block_sidecar(log)
    await broker.finished(await broker.post("/topics/broken-1/now"))
    await broker.finished(await broker.post("/topics/orders/now"))


async def test_the_history_is_found_again_after_a_restart_by_topic_and_partition(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await fill(broker)
    async with steered_broker(tmp_path) as broker:
        everything = await history_of(broker)
        of_topic = await history_of(broker, "?topic=orders")
        of_partition = await history_of(broker, "?topic=orders&partition=1")
        (last,) = await history_of(broker, "?limit=1")

    # The new process retries the failed pass at once.
    assert [each["result"] for each in everything[-3:]] == ["completed", "completed", "failed"]
    assert everything[-1]["kind"] == "disk_error"
    assert [each["partition"] for each in of_topic] == [1, 0]
    assert of_partition == of_topic[:1]
    assert last["ended_ms"] >= everything[0]["ended_ms"]
    assert of_topic[1]["records_by_verdict"]["dropped_superseded"] == 2
    assert of_topic[1]["reason"] == "REQUESTED"


async def test_a_pass_that_the_broker_s_stop_ends_is_in_the_history(tmp_path: Path) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1", "log_cleaner_latency_guard_enable": "false"}
    async with steered_broker(tmp_path, **slow) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await broker.post("/topics/orders/now")
        while not broker.served.broker.cleaner_counts.running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with steered_broker(tmp_path) as broker:
        (entry,) = await history_of(broker)

    assert (entry["result"], entry["topic"]) == ("aborted", "orders")
    assert entry["error"]


@pytest.mark.parametrize("query", ["?limit=0", "?limit=x", "?partition=-1", "?partition=one"])
async def test_an_invalid_number_is_refused(tmp_path: Path, query: str) -> None:
    async with steered_broker(tmp_path) as broker:
        status, answer = await broker.ask("GET", f"/history{query}")

    assert status == 400
    assert "is a number from" in answer["error"]


async def test_a_broker_that_does_not_clean_still_shows_what_was_cleaned(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await fill(broker)
    async with steered_broker(tmp_path, log_cleaner_enable="false") as broker:
        assert len(await history_of(broker)) == 3


async def show(broker: SteeredBroker, *arguments: str) -> int:
    command = ["compact", "history", *arguments, "--url", broker.url]
    return await asyncio.to_thread(run_command, command)


async def test_the_command_shows_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with steered_broker(tmp_path) as broker:
        await fill(broker)
        assert await show(broker) == 0
        table = capsys.readouterr().out.splitlines()
        assert await show(broker, "orders-1", "--json") == 0
        (entry,) = json.loads(capsys.readouterr().out)["passes"]
        assert await show(broker, "broken-1") == 0
        of_topic = capsys.readouterr().out.splitlines()
        assert await show(broker, "nothing") == 0
        of_nothing = capsys.readouterr().out.splitlines()

    assert len(table) == 5
    assert " ".join(table[0].split()) == "ended (UTC) partition took before after dropped why"
    assert " orders-1 " in table[1]
    assert " orders-0 " in table[2]
    assert table[2].split()[-2:] == ["2", "requested"]
    assert " broken-1-0 " in table[3]
    assert table[3].split()[-1] == "failed"
    assert " broken-1-0 failed: unlink " in table[4]
    assert (entry["topic"], entry["partition"]) == ("orders", 1)
    assert len(of_topic) == 3, "a topic of that whole name comes first"
    assert of_nothing == ["no pass over nothing has ended yet"]


def test_a_killed_broker_s_history_is_there_after_its_restart(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50}
    topic = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    with BrokerProcess(tmp_path, settings) as process:
        create_topic(process.bootstrap_servers, "table", config=topic)
        records = [(b"key-%d" % (number % 10), b"value") for number in range(100)]
        ConfluentClient().produce(process.bootstrap_servers, {"table": "none"}, records)
        while not passes_of(process):
            time.sleep(0.05)
        before = passes_of(process)
        process.kill()
        with (process.data_dir / "compaction-history").open("ab") as file:
            file.write(b"01234567 {torn")
        process.start()
        after = passes_of(process)

    assert after[-len(before) :] == before
    assert before[0]["topic"] == "table"


def passes_of(process: BrokerProcess) -> list[Json]:
    text = scrape(f"127.0.0.1:{process.http_port}", "/v1/compaction/history")
    return list(json.loads(text)["passes"])
