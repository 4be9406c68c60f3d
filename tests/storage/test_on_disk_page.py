"""docs/reference/on-disk.md is enough to read a data directory: a reader written from it alone does."""

from __future__ import annotations

import ast
import asyncio
import itertools
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import xxhash
from nacl.bindings import crypto_shorthash_siphashx24

from protocol.records.batch_header import CONTROL, read_header
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Codec, Record, build_batch, build_control_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId
from replog.trigger import CompactionSettings
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Delete, Put
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_id_text
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.replacement import Replacement
from tests.harness import on_disk_reader, on_disk_sidecars
from tests.harness.copied_log import begin_copy
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.key_blocks import index
from tests.harness.log_builder import batch_of, marker_of, records_in, run_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome, read_all
from tests.harness.on_disk_reader import (
    DataDirectory,
    Log,
    Segment,
    epoch_of,
    expected_indexes,
    read_aborted,
    read_data_directory,
    read_epochs,
    read_log,
    read_offset_index,
    read_snapshot,
    read_time_index,
)
from tests.harness.on_disk_sidecars import (
    SpecialRow,
    expected_blocks,
    expected_totals,
    read_sidecar,
)
from tests.harness.served_broker import NOW_MS, ServedBroker, serving_broker

CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)
INTERVAL_BYTES = 300
LONG_NAME = "n" * 230
HEADERS = (("name", b"value"), ("empty", None))


@pytest.mark.parametrize("reader", [on_disk_reader, on_disk_sidecars])
def test_the_reader_shares_nothing_with_the_broker(reader: ModuleType) -> None:
    nodes = list(ast.walk(ast.parse(Path(str(reader.__file__)).read_text("utf-8"))))
    plain = (node for node in nodes if isinstance(node, ast.Import))
    imported = {
        *(alias.name for node in plain for alias in node.names),
        *(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)),
    } - {on_disk_reader.__name__}

    packages = {name.partition(".")[0] for name in imported}
    assert not packages & {"storage", "protocol", "server", "cleaner", "tests"}


async def test_the_metadata_are_read_from_a_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    settings = CompactionSettings(u=1.0, floor_bytes=3_000)
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), str(tmp_path), settings)
    for number in range(100):
        await store.txn((), [Put(key=f"/{number % 30}", value=f"{number}é")])
        await store.txn((), [Delete(key=f"/{number % 7}")])
    lease = await store.grant(60_000)
    await store.txn((), [Put(key="/leased", value="x", lease=lease)])
    expected = {entry.key: entry.value for entry in (await store.range("")).entries}
    revision = store.revision
    await store.close()

    assert any(name.endswith(".checkpoint") for name in LocalFileSystem().list(str(tmp_path)))
    assert on_disk_reader.read_metadata(tmp_path) == (revision, expected)


# ---------------------------------------------------------------- a broker's directory


async def _fill(served: ServedBroker) -> None:
    await served.create(
        "table",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0",
        index_interval_bytes=str(INTERVAL_BYTES),
    )
    await served.create(LONG_NAME, partitions=2, index_interval_bytes=str(INTERVAL_BYTES))
    for round_ in range(40):
        codec = CODECS[round_ % len(CODECS)]
        await served.produce("table", _batch(round_, codec, producer_id=round_ % 3))
        await served.produce(LONG_NAME, _batch(round_, codec), partition=1)


def _batch(round_: int, codec: Codec, producer_id: int = -1) -> bytearray:
    """Ten keys, of which two appear in a few rounds only; one is deleted."""
    records = [
        Record(
            offset=index,
            timestamp=NOW_MS + round_ * 10 - index,
            key=b"key-%d" % (index or round_ // 4),
            value=None if index == 4 else b"%d " % round_ * 10,
            headers=HEADERS if index == 5 else (),
        )
        for index in range(10)
    ]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else round_ // 3 * 10,
    )


async def _served(served: ServedBroker, topic: str, partition: int) -> list[Any]:
    """Returns every record that a client gets."""
    log = served.log(topic, partition)
    records = read_all(log, max_bytes=1 << 20)
    return [_plain(record) for record in records]


def _plain(record: Record) -> tuple[int, int, bytes | None, bytes | None, list[Any]]:
    headers = [(key.encode(), value) for key, value in record.headers]
    return record.offset, record.timestamp, record.key, record.value, headers


async def test_a_broker_s_directory_holds_what_the_broker_serves(tmp_path: Path) -> None:
    path = tmp_path / "data"
    async with serving_broker(
        path, log_cleaner_enable="true", log_cleaner_backoff_ms="20"
    ) as served:
        await _fill(served)
        table = served.log("table")
        while table.clean_offset < 400:  # noqa: ASYNC110 - a pass tells nobody
            await asyncio.sleep(0.02)
        in_use = read_data_directory(path)
        expected = {key: await _served(served, *key) for key in in_use.logs}
        ids = {name: topic_id_text(served.log(name).topic_id) for name in in_use.topics}
        producers = {number: table.producers.get(ProducerId(number)) for number in range(3)}
        cluster_id = served.broker.node.cluster_id
        fetched = (await served.fetch("table", 0, max_bytes=1 << 20)).records
    stopped = read_data_directory(path)

    for found in (in_use, stopped):
        assert set(found.logs) == {("table", 0), (LONG_NAME, 0), (LONG_NAME, 1)}
        for key, log in found.logs.items():
            assert log.records() == expected[key]
            _check_log(log, ids[key[0]], key[1])
            _check_sidecars(log, found.hash_key)
        assert found.properties["cluster.id"] == cluster_id
        assert found.properties["kompakt.format"] == "1"
        assert found.starts == 0
        assert len(found.hash_key) == 16
        assert found.topics["table"]["configs"]["cleanup.policy"] == "compact"
    assert stat.S_IMODE((path / "hash.key").stat().st_mode) == 0o600
    assert (in_use.was_clean, stopped.was_clean) == (False, True)
    last = stopped.history[-1]
    assert (last["topic"], last["partition"], last["result"]) == ("table", 0, "completed")
    assert last["end_offset"] == stopped.logs["table", 0].manifest.clean_offset
    assert stopped.logs["table", 0].manifest.rows[-1]["end_offset"] == 400
    assert stopped.logs[LONG_NAME, 1].manifest.rows[-1]["record_count"] == 400

    # A fetch sends exactly these bytes.
    assert isinstance(fetched, bytes | memoryview)
    assert [_plain(record) for record in records_in(bytes(fetched))] == expected["table", 0]
    _check_cleaned(stopped.logs["table", 0])
    _check_ledger(stopped)
    assert stat.S_IMODE((path / "signing.key").stat().st_mode) == 0o600
    _check_producers(stopped.logs["table", 0], producers)


def _check_ledger(found: DataDirectory) -> None:
    """Each cleaned segment has its certificate, with the digest of its bytes."""
    begin, *entries = found.ledger
    assert begin["directory"] == found.properties["directory.id"]
    digests = {
        (each["base_offset"], each["version"]): each["digest"]
        for entry in entries
        if entry["kind"] == "group"
        for each in entry["outputs"]
    }
    cleaned = [
        segment
        for segment in found.logs["table", 0].segments
        if segment.row is not None and segment.row["flags"] & 1
    ]
    assert cleaned
    for segment in cleaned:
        name = segment.row["base_offset"], segment.row["file_version"]  # type: ignore[index]
        digest = xxhash.xxh3_128(segment.path.read_bytes()).hexdigest()
        assert digests[name] == f"xxh3:{digest}"
    assert entries[-1]["kind"] == "pass"


def _check_log(log: Log, topic_id: str, partition: int) -> None:
    manifest = log.manifest
    assert (manifest.topic_id, manifest.partition) == (topic_id, partition)
    assert manifest.version >= max(row["file_version"] for row in manifest.rows)
    for segment in log.segments[:-1]:
        row = segment.row
        assert row is not None
        batches = [batch for batch in segment.batches if batch.record_count]
        assert sum(batch.record_count for batch in batches) == row["record_count"]
        markers = [batch for batch in batches if batch.attributes & CONTROL]
        assert sum(batch.record_count for batch in markers) == row["control_count"]
        youngest = max((batch.max_timestamp for batch in batches), default=-1)
        assert youngest == row["max_timestamp"]
        waiting = [b for b in batches if any(value is None for *_, value, _ in b.records())]
        horizons = [h for b in waiting if (h := b.delete_horizon) is not None]
        assert min(horizons, default=-1) == row["least_delete_horizon"]
        if row["tombstone_count"] != -1:
            _check_tombstones(row, waiting)
        indexes = (read_offset_index(segment), read_time_index(segment))
        assert indexes == expected_indexes(segment, INTERVAL_BYTES)
    if log.batches():
        epochs = read_epochs(log.directory) if manifest.rows[-1]["size"] > 0 else [(0, 0)]
        assert {batch.epoch for batch in log.batches()} == {epoch_of(epochs, 0)} == {0}


def _check_tombstones(row: dict[str, int], waiting: list[on_disk_reader.Batch]) -> None:
    """Check what a pass has counted of a segment's tombstones."""
    sizes = [
        size for batch in waiting for (*_, value, _), size in batch.sized_records() if value is None
    ]
    horizons = [batch.delete_horizon for batch in waiting]
    due = max((2**63 - 1 if each is None else each for each in horizons), default=-1)
    assert (row["tombstone_count"], row["tombstone_bytes"]) == (len(sizes), sum(sizes))
    assert row["tombstones_due"] == due


def _check_sidecars(log: Log, hash_key: bytes) -> None:
    """Returns all key sidecars; at least one is of a cleaned segment."""
    for segment in log.segments[:-1]:
        assert segment.row is not None
        if segment.path.with_suffix(".keys").exists() or segment.row["flags"] & 1:
            _check_sidecar(segment, hash_key)


def _check_cleaned(log: Log) -> None:
    """Returns the cleaned segment's batches: rebuilt, with horizons; a producer's may be empty."""
    (cleaned,) = [each for each in log.segments if each.row is not None and each.row["flags"] & 1]
    assert log.manifest.clean_offset == 400
    tombstones = [record for record in log.records() if record[3] is None]
    assert [record[2] for record in tombstones] == [b"key-4"]
    # A slow machine may clean the log in two passes; then a batch keeps the first one's horizon.
    horizons = [each.delete_horizon for each in cleaned.batches if each.delete_horizon is not None]
    assert horizons
    assert min(horizons) > NOW_MS + 86_400_000 - 60_000
    for batch in cleaned.batches:
        assert batch.last_offset - batch.base_offset == 9, "a batch covers what it did"


def _check_producers(log: Log, producers: dict[int, Any]) -> None:
    *_, newest = sorted(log.directory.glob("*.snapshot"))
    assert int(newest.name.partition(".")[0]) == 400
    for producer_id, (epoch, time, batches) in read_snapshot(newest).items():
        state = producers[producer_id]
        assert (epoch, time) == (state.producer_epoch, state.last_timestamp)
        assert batches == [
            (each.first_sequence, each.last_sequence, each.last_offset) for each in state.batches
        ]


# ---------------------------------------------------------------- what crashes and the cleaner leave


class OnDisk:
    """A log on the local file system."""

    def __init__(self, path: Path, *, inline: bool = True) -> None:
        self.directory = path / "data" / "orders" / "0"
        self.directory.mkdir(parents=True)
        self.background = Deferred(inline=inline)
        self.home = LogHome(
            LocalFileSystem(),
            directory=str(self.directory),
            config=SMALL,
            background=self.background,
        )
        self.log: PartitionLog = self.home.create()

    def append(self, count: int, *, producer_id: int = -1, sequence: int = -1) -> None:
        for number in range(count):
            batch = batch_of(
                [(b"key-%d" % number, bytes(40))],
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else 2,
                base_sequence=sequence + number if producer_id >= 0 else -1,
            )
            assert isinstance(self.log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
        self.log.advance_high_watermark(self.log.sync())

    def clean(self, keep: Callable[[Record], bool], *, clean_offset: int) -> int:
        """Replace all sealed segments by one, with a key sidecar. Returns its version."""
        view = self.log.cleaning_view()
        batches, _ = recopied(view.segments, keep, view.producer_last_offsets)
        (cleaned,) = write_cleaned(self.log, view.segments, batches, cut=99)
        rows = [each.row for each in view.segments]
        self.log.cleaning.swap(
            rows, [cleaned], generation=view.generation, clean_offset=Offset(clean_offset)
        )
        return cleaned.row.file_version

    def offsets(self) -> list[int]:
        return [record[0] for record in read_log(self.directory).records()]

    def served(self) -> list[int]:
        return [record.offset for record in read_all(self.log)]


def test_rolled_segments_that_no_manifest_lists_are_read(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path, inline=False)
    for _ in range(3):
        disk.append(3)
        disk.log.roll(0)
    disk.append(2)
    disk.background.waiting.clear()

    assert len(read_log(disk.directory).manifest.rows) == 1
    assert disk.offsets() == disk.served() == list(range(11))


def test_a_log_ends_before_what_a_crash_has_torn(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.append(3)
    disk.log.roll(0)
    disk.append(2)
    path = max(disk.directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-7])

    assert disk.offsets() == [0, 1, 2, 3]
    disk.log = disk.home.open()
    assert disk.served() == [0, 1, 2, 3]
    assert (disk.directory / "cut.4.0").exists()
    assert disk.offsets() == [0, 1, 2, 3]


def test_a_checkpoint_is_the_end_in_the_last_row(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.append(4, producer_id=9, sequence=0)
    checkpoint = disk.log.checkpoint(grown_bytes_min=1)
    assert checkpoint is not None
    checkpoint()
    disk.append(1, producer_id=9, sequence=4)

    log = read_log(disk.directory)

    row = log.manifest.rows[-1]
    assert (row["end_offset"], row["record_count"]) == (4, 4)
    assert row["size"] == log.batches()[3].position + log.batches()[3].size
    assert disk.offsets() == [0, 1, 2, 3, 4]
    (snapshot,) = disk.directory.glob("*.snapshot")
    assert read_snapshot(snapshot) == {9: (2, 0, [(n, n, n) for n in range(4)])}
    offsets, times = expected_indexes(log.segments[-1], SMALL.index_interval_bytes)
    below = [entry for entry in offsets if entry[1] < row["size"]]
    assert read_offset_index(log.segments[-1])[: len(below)] == below
    assert read_time_index(log.segments[-1]) == times[:1]


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_swapped_log_is_read_before_and_after_its_renames(
    tmp_path: Path, is_renamed: bool
) -> None:
    disk = OnDisk(tmp_path)
    disk.append(3, producer_id=9, sequence=0)
    disk.log.roll(0)
    disk.append(3)
    disk.log.roll(0)
    version = disk.clean(lambda record: record.offset in (0, 4), clean_offset=6)
    if not is_renamed:
        for path in disk.directory.glob(f"*.v{version}.*"):
            path.rename(path.with_name(path.name + ".cleaned"))

    log = read_log(disk.directory)

    assert [record[0] for record in log.records()] == [0, 4]
    (empty,) = [batch for batch in log.batches() if not batch.record_count]
    assert (empty.size, empty.base_timestamp, empty.last_offset) == (61, -1, 2)
    assert (empty.producer_id, empty.base_sequence) == (9, 2)
    assert log.manifest.rows[0]["end_offset"] == log.manifest.clean_offset == 6


def test_key_sidecars_are_as_described(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.append(2, producer_id=9, sequence=0)
    for pairs in ([(b"a", None), (None, b"1"), (b"b", b"2")], [(b"a", b"3")]):
        disk.log.appender.append_as_leader(valid(batch_of(pairs, codec=Codec.GZIP)), now_ms=0)
    transactional = batch_of(
        [(b"c", None)],
        producer_id=4,
        producer_epoch=1,
        base_sequence=0,
        is_transactional=True,
    )
    disk.log.appender.append_as_leader(valid(transactional), now_ms=0)
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        disk.log.appender.append_as_leader(valid(marker_of(kind, 4, 1)), now_ms=0)
    disk.log.advance_high_watermark(disk.log.sync())
    disk.log.roll(0)
    disk.clean(lambda record: record.offset != 1, clean_offset=9)
    disk.append(1)
    disk.log.appender.advance_end(Offset(disk.log.log_end_offset + 3))
    disk.log.roll(0)
    hash_key = disk.home.identity.hash_key
    for cleanable in disk.log.cleaning_view().segments[-1:]:
        index(cleanable, hash_key)

    log = read_log(disk.directory)

    rows = [row for segment in log.segments[:-1] for row in _check_sidecar(segment, hash_key)]
    assert [row[4] for row in rows] == [5, 1, 2, 3, 5]
    assert not log.segments[-1].path.with_suffix(".keys").exists()


def _check_sidecar(segment: Segment, hash_key: bytes) -> list[SpecialRow]:
    """Compare a segment's sidecar with the text. Returns its special rows."""
    sidecar = read_sidecar(segment.path.with_suffix(".keys"), hash_key)
    assert segment.row is not None
    assert sidecar.base_offset == segment.base_offset
    assert sidecar.file_version == segment.row["file_version"]
    ends = list(itertools.accumulate(block.data_bytes for block in sidecar.blocks))
    assert ends[-1] == sidecar.totals["segment_size"] == segment.row["size"]
    expected = expected_blocks(
        segment, lambda key: crypto_shorthash_siphashx24(key, hash_key), ends
    )
    assert sidecar.blocks == expected
    assert sidecar.totals == expected_totals(segment, expected)
    return [row for block in sidecar.blocks for row in block.special_rows]


def test_truncation_start_and_epochs_are_read(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.append(3)
    disk.log.close()
    disk.log = disk.home.open(epoch=5, is_clean=True)
    disk.append(4)
    disk.log.truncate_to(Offset(5))

    log = read_log(disk.directory)

    assert log.manifest.generation == 1
    assert log.manifest.truncate_to == -1
    assert [record[0] for record in log.records()] == [0, 1, 2, 3, 4]
    epochs = read_epochs(disk.directory)
    assert epochs == [(1, 0), (5, 3)]
    assert [batch.epoch for batch in log.batches()] == [
        epoch_of(epochs, batch.base_offset) for batch in log.batches()
    ]

    disk.log.truncate_fully_and_start_at(Offset(70))
    disk.append(1)
    log = read_log(disk.directory)
    assert (log.manifest.log_start_offset, log.end_offset) == (70, 71)


def test_aborted_transactions_are_as_described(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    assert read_aborted(disk.directory) == []
    for _ in range(2):
        sent = batch_of([(b"k", b"v")] * 2, producer_id=9, producer_epoch=0, is_transactional=True)
        disk.log.appender.append_as_leader(valid(sent), now_ms=0)
        disk.log.appender.append_marker(
            ProducerId(9), Epoch(0), is_commit=False, coordinator_epoch=Epoch(3), now_ms=0
        )
    disk.log.roll(0)
    assert read_aborted(disk.directory) == [(9, 0, 2), (9, 3, 5)]


def test_control_records_are_as_described(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    marker = TransactionMarker(type=ControlType.COMMIT, coordinator_epoch=3)
    batch = build_control_batch(marker, timestamp=1, producer_id=9, producer_epoch=0)
    disk.log.appender.append_as_follower(run_of(batch), now_ms=0)

    log = read_log(disk.directory)

    ((_, _, key, value, _),) = log.batches()[0].records()
    assert key == bytes([0, 0, 0, 1])
    assert value == bytes([0, 0, 0, 0, 0, 3])
    assert log.records() == []
    assert read_header(batch).is_control


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_log_that_a_copy_has_replaced_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_finished: bool
) -> None:
    disk = OnDisk(tmp_path)
    disk.append(3)
    disk.log.roll(0)
    disk.append(4)
    copy = begin_copy(disk.home, disk.log, 2)
    copy.appender.append_as_follower(
        run_of(*(batch_of([(b"k", b"v")], base_offset=at, leader_epoch=0) for at in (2, 6, 8))),
        now_ms=0,
    )
    if not is_finished:
        monkeypatch.setattr(Replacement, "_finish", lambda *_: None)
        monkeypatch.setattr(PartitionLog, "retire", lambda _: None)
    aside = disk.log.replace_with(copy, puts_aside=True)

    assert disk.offsets() == [2, 6, 8]
    if aside is not None:
        log = read_log(Path(aside))
        assert Path(aside).name == "0.aside.7"
        assert [record[0] for record in log.records()] == list(range(7))
        assert log.manifest.rows[-1]["end_offset"] == 7
        assert read_epochs(disk.directory) == [(0, 2)]
    assert (aside is not None) == is_finished
