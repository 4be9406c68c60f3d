"""`explain` gives the true reason why a log is not compacted: each case in a real broker, over HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cleaner.pool.expiries import Expiries
from cleaner.rules.expiry_report import ExpiryFacts
from protocol.records.control_record import ControlType
from storage.files.paths import LOG
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleanableSegment
from tests.harness.blocked_sidecar import block_sidecar
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.log_builder import batch_of as log_batch_of
from tests.harness.log_builder import marker_of, valid
from tests.harness.served_broker import serving_broker_on
from tests.harness.steered_broker import LAZY, SteeredBroker, steered_broker

Json = dict[str, Any]
EAGER = {"log_cleaner_backoff_ms": "20"}


async def explained(broker: SteeredBroker, topic: str = "orders") -> Json:
    answer = await broker.get(f"/topics/{topic}/partitions/0/explain")
    (explanation,) = answer["partitions"]
    assert isinstance(explanation, dict)
    return explanation


async def first_finding(broker: SteeredBroker, obstacle: str) -> Json:
    """Returns the decisive finding, after checking its obstacle, its sentence and its remedy."""
    explanation = await explained(broker)
    finding = explanation["findings"][0]
    assert finding["obstacle"] == obstacle, explanation
    assert explanation["text"] == f"orders-0 is not being compacted: {finding['text']}"
    assert finding["remedy"]
    assert isinstance(finding, dict)
    return finding


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110 - threads set no event
            await asyncio.sleep(0.01)


async def compacted(broker: SteeredBroker, **configs: str) -> None:
    """Create a compacted topic with three records of one key in its active segment."""
    await broker.served.create("orders", 1, **{"cleanup_policy": "compact", **configs})
    await broker.produce_dirty("orders")


def roll(broker: SteeredBroker) -> None:
    broker.served.log("orders").roll(int(time.time() * 1000))


def damage(path: str) -> None:
    """Flip bits of a byte in the first batch."""
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:64] + bytes([data[64] ^ 0xFF]) + data[65:])


async def test_policy(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, cleanup_policy="delete")

        finding = await first_finding(broker, "policy")

        assert "cleanup.policy is delete" in finding["text"]
        assert finding["remedy"] == "set cleanup.policy=compact for topic orders"


@pytest.mark.parametrize(
    ("policy", "text", "remedy"),
    [
        ("compact", "mirror.compaction is off", "set mirror.compaction=on for topic orders"),
        ("delete", "cleanup.policy is delete", "for topic orders at the source of link dr"),
    ],
)
async def test_a_mirror_says_which_side_decides(
    tmp_path: Path, policy: str, text: str, remedy: str
) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, cleanup_policy=policy)
        await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "mirror.link": "dr"}
        )

        finding = await first_finding(broker, "policy")
        status, answer = await broker.ask("POST", "/topics/orders/now")

        assert text in finding["text"]
        assert finding["remedy"].endswith(remedy)
        assert (status, answer["error"].endswith(remedy)) == (409, True)


async def test_active_segment(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, segment_ms="3600000")

        finding = await first_finding(broker, "active_segment")

        active = broker.served.log("orders").segments[-1]
        assert "offsets [0, 3)" in finding["text"]
        assert finding["numbers"]["active_bytes"] == active.size
        assert finding["numbers"]["rolls_at_ms"] <= active.first_append_ms + 3_600_000
        assert "kompakt compact now orders-0 rolls it" in finding["remedy"]

        await broker.finished(await broker.post("/topics/orders/partitions/0/now"))
        assert broker.served.log("orders").clean_offset == 3


async def test_ratio(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, min_cleanable_dirty_ratio="0.9")
        await broker.finished(await broker.post("/topics/orders/now"))
        await broker.produce_dirty("orders", 1)
        roll(broker)

        finding = await first_finding(broker, "ratio")

        assert finding["numbers"]["dirty_ratio"] == pytest.approx(0.5, abs=0.02)
        assert "not above min.cleanable.dirty.ratio=0.9" in finding["text"]
        dirty, clean = (segment.size for segment in broker.served.log("orders").segments[1::-1])
        assert f": {dirty} B dirty, {clean} B clean" in finding["text"]
        assert finding["remedy"].startswith("set min.cleanable.dirty.ratio below 0.5")


async def test_minimum_lag(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        # The deadline comes first, but the cleaner waits until the minimum lag is over.
        await compacted(
            broker,
            min_compaction_lag_ms="3600000",
            max_compaction_lag_ms="3600001",
            min_cleanable_dirty_ratio="0",
        )
        log = broker.served.log("orders")
        log.segments[0].first_append_ms -= 60_000
        roll(broker)

        finding = await first_finding(broker, "minimum_lag")

        last_append = broker.served.log("orders").segments[0].last_append_ms
        assert finding["numbers"]["until_ms"] == last_append + 3_600_000
        assert "younger than min.compaction.lag.ms=3600000" in finding["text"]


async def test_open_transaction_by_producer_id(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **EAGER) as broker:
        await broker.served.create(
            "orders", cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_ms="3600000"
        )
        log = broker.served.log("orders")
        three_hours_ago = int(time.time() * 1000) - 3 * 3_600_000
        batch = log_batch_of(
            [(b"a", b"1")],
            producer_id=4711,
            producer_epoch=2,
            base_sequence=0,
            is_transactional=True,
            timestamps=[three_hours_ago],
        )
        log.appender.append_as_leader(valid(batch), now_ms=three_hours_ago)
        log.advance_high_watermark(log.sync())
        roll(broker)
        # A pass runs but makes no progress; then the log is no longer eligible.
        while (await explained(broker))["is_eligible"]:  # noqa: ASYNC110 - threads set no event
            await asyncio.sleep(0.01)

        finding = await first_finding(broker, "open_transaction")

        assert "pinned by producer 4711 (epoch 2)" in finding["text"]
        assert "since offset 0, for 3.0 h" in finding["text"]
        command = "kompakt transactions abort --partition orders-0 --start-offset 0"
        assert command in finding["remedy"]
        assert finding["numbers"]["producer_id"] == 4711

        log.appender.append_as_leader(
            valid(marker_of(ControlType.COMMIT, 4711, 2)), now_ms=three_hours_ago
        )
        log.advance_high_watermark(log.sync())
        roll(broker)
        assert (await broker.post("/topics/orders/now"))["id"]
        await until(lambda: log.clean_offset == 2)


@pytest.mark.parametrize(
    ("where", "scope", "remedy"),
    [
        ("", "everything", "kompakt compact resume"),
        ("/topics/orders", "topic", "kompakt compact resume orders"),
        ("/topics/orders/partitions/0", "partition", "kompakt compact resume orders-0"),
    ],
)
async def test_paused(tmp_path: Path, where: str, scope: str, remedy: str) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker)
        await broker.post(f"{where}/pause")

        finding = await first_finding(broker, "paused")

        assert finding["numbers"]["scope"] == scope
        assert finding["remedy"] == remedy


async def test_quarantined(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker)
        roll(broker)
        block_sidecar(broker.served.log("orders"))
        await broker.finished(await broker.post("/topics/orders/now"))

        finding = await first_finding(broker, "quarantined")

        assert ".keys" in finding["text"]
        assert finding["numbers"]["failures"] == 1
        assert 0 < finding["numbers"]["retry_in_seconds"] <= 30
        assert "kompakt dump-log --verify" in finding["remedy"]


async def test_fenced(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker)
        roll(broker)
        damage(broker.served.log("orders").segments[0].path(LOG))
        await broker.finished(await broker.post("/topics/orders/now"))

        explanation = await explained(broker)
        status = await broker.get("")

        (finding,) = [each for each in explanation["findings"] if each["obstacle"] == "fenced"]
        assert "damaged" not in explanation["text"], "a fence keeps no pass from running"
        assert "1 damaged segment" in finding["text"]
        assert "CRC" in finding["text"]
        assert "tombstones from offset 0 on stay" in finding["text"]
        assert "kompakt compact now orders-0" in finding["remedy"]
        assert "set cleanup.policy=compact,delete" in finding["remedy"]
        assert "kompakt topics delete-records orders --partition 0 --before 3" in finding["remedy"]
        assert finding["numbers"]["first_offset"] == 0
        assert finding["numbers"]["end_offset"] == 3
        (fence,) = status["fenced"]
        assert (fence["topic"], fence["partition"], fence["base_offset"]) == ("orders", 0, 0)
        assert fence["since_ms"] == finding["numbers"]["since_ms"]
        assert status["quarantined"] == []


async def test_throttled(tmp_path: Path) -> None:
    slow = {"log_cleaner_io_read_bytes_per_second": "200"}
    async with steered_broker(tmp_path, **slow) as broker:
        await compacted(broker)
        await broker.served.create("other", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        await broker.produce_dirty("other")
        broker.served.log("other").roll(0)
        await broker.post("/topics/orders/now")
        while not (await explained(broker))["findings"]:  # noqa: ASYNC110 - it has to sleep first
            await asyncio.sleep(0.01)

        own, waiting = await explained(broker), await explained(broker, "other")

        assert own["is_running"]
        assert own["findings"][0]["obstacle"] == "throttled"
        text = own["findings"][0]["text"]
        assert "held to 200 B/s by log.cleaner.io.read.bytes.per.second" in text
        assert own["findings"][0]["remedy"] == "raise log.cleaner.io.read.bytes.per.second"
        assert [each["obstacle"] for each in waiting["findings"]] == ["waiting", "throttled"]
        assert waiting["is_eligible"]
        assert "with orders-0" in waiting["findings"][0]["text"]


async def test_window(tmp_path: Path) -> None:
    # A window of a minute, twelve hours away.
    start = datetime.now(UTC) + timedelta(hours=12)
    window = f"{start:%H:%M}-{start + timedelta(minutes=1):%H:%M}"
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, compaction_window=window, min_cleanable_dirty_ratio="0")
        roll(broker)

        finding = await first_finding(broker, "window")

        assert (
            f"only in compaction.window={window} (UTC); the next one begins at" in finding["text"]
        )
        assert "kompakt compact now orders-0" in finding["remedy"]
        await broker.finished(await broker.post("/topics/orders/now"))
        await first_finding(broker, "nothing_dirty")


async def test_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, read_at = threading.Event(), CleanableSegment.read_at

    def a_disk_that_hangs(segment: CleanableSegment, position: int, size: int) -> bytes:
        assert answers.wait(60)
        return read_at(segment, position, size)

    monkeypatch.setattr(CleanableSegment, "read_at", a_disk_that_hangs)
    async with steered_broker(tmp_path, log_cleaner_stalled_ms="1000") as broker:
        await compacted(broker)
        job = await broker.post("/topics/orders/now")
        while not (await explained(broker))["findings"]:  # noqa: ASYNC110 - it has to hang for a second
            await asyncio.sleep(0.05)

        (finding,) = (await explained(broker))["findings"]

        assert finding["obstacle"] == "stalled"
        assert "the pass over orders-0 has made no progress for 1" in finding["text"]
        assert "kompakt compact cancel orders-0" in finding["remedy"]
        assert broker.served.broker.stalled_cleaner_tasks == 1
        answers.set()
        assert (await broker.finished(job))["is_done"]


@asynccontextmanager
async def on_a_full_disk(tmp_path: Path) -> AsyncIterator[tuple[SteeredBroker, FaultyFileSystem]]:
    files = FaultyFileSystem()
    properties = {"http_listener": "127.0.0.1:0", "log_cleaner_enable": "true", **LAZY}
    async with (
        serving_broker_on(files, tmp_path, **properties) as served,
        aiohttp.ClientSession() as session,
    ):
        yield SteeredBroker(served, session), files


def files_of(broker: SteeredBroker) -> dict[str, bytes]:
    """Returns the names of the files in the log's directory."""
    directory = Path(broker.served.log("orders").directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_disk_full(tmp_path: Path) -> None:
    async with on_a_full_disk(tmp_path) as (broker, files):
        await compacted(broker)
        roll(broker)
        files.faults.space = 0
        await broker.finished(await broker.post("/topics/orders/now"))
        files.faults.space = None

        finding = await first_finding(broker, "disk_full")

        assert "no space" in finding["text"].lower()
        assert finding["remedy"].startswith("make room on its log directory's disk")


async def test_a_plan_that_finds_no_space_for_missing_sidecars_says_so_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with on_a_full_disk(tmp_path) as (broker, files):
        await compacted(broker)
        before = files_of(broker)
        files.faults.space = 0

        job = await broker.finished(await broker.post("/topics/orders/partitions/0/plan"))

        files.faults.space = None
        (part,) = job["partitions"]
        assert part["state"] == "failed"
        assert "no space" in part["error"].lower()
        assert files_of(broker) == before
        await first_finding(broker, "active_segment")


async def test_nothing_dirty(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker)
        await broker.finished(await broker.post("/topics/orders/now"))

        finding = await first_finding(broker, "nothing_dirty")

        assert "every record below offset 3 was cleaned" in finding["text"]


async def test_further_findings_follow_the_decisive_one(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, min_cleanable_dirty_ratio="0.9")
        await broker.finished(await broker.post("/topics/orders/now"))
        await broker.produce_dirty("orders", 1)
        await broker.post("/topics/orders/pause")

        findings = (await explained(broker))["findings"]

        assert [each["obstacle"] for each in findings] == ["paused", "active_segment", "ratio"]


async def test_a_log_that_is_about_to_be_cleaned_has_no_obstacle(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await compacted(broker, min_cleanable_dirty_ratio="0")
        roll(broker)

        explanation = await explained(broker)

        assert explanation["findings"] == []
        assert explanation["is_eligible"]
        assert explanation["text"] == "orders-0 is about to be compacted: dirty"


async def test_one_request_about_many_partitions_asks_the_pool_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Expiries] = []
    all_facts = Expiries.all_facts

    def counted(expiries: Expiries) -> dict[TopicPartition, ExpiryFacts]:
        calls.append(expiries)
        return all_facts(expiries)

    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 5, cleanup_policy="compact")
        monkeypatch.setattr(Expiries, "all_facts", counted)
        answer = await broker.get("/topics/orders/explain")

    assert [each["partition"] for each in answer["partitions"]] == list(range(5))
    assert len(calls) == 1
