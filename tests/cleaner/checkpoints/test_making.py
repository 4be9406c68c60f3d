"""Making a checkpoint: what it holds, what it leaves out, and from what it is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import xxhash

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.pacing.meter import CleaningAborted
from protocol.internal_topics.coordinator_records import write_key, write_value
from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record_batch import Record, read_records
from protocol.wire.numbers import Offset
from storage.files.errors import DiskError
from storage.files.paths import PART
from tests.harness.checkpointed_log import PATH, CheckpointedLog, group_record
from tests.harness.compacted_log import DIRECTORY
from tests.harness.offsets_model import Commit, Marker, Tombstones
from tests.harness.offsets_world import commit


def batches_of(log: CheckpointedLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Returns the batches in the log's checkpoint."""
    found = []
    with CheckpointReader(log.fs, PATH) as reader:
        for piece in reader.pieces():
            position = 0
            while position < len(piece):
                header = read_header(piece, position)
                records = list(read_records(piece, position, decompressed_bytes_max=1 << 20))
                found.append((header, records))
                position += header.size_bytes
    return found


def offsets_of(log: CheckpointedLog) -> list[int]:
    return [record.offset for _, records in batches_of(log) for record in records]


def test_it_holds_the_last_record_of_each_key_with_its_offset() -> None:
    log = CheckpointedLog()
    for event in (Commit("a", (0, 1)), Commit("a", (0,)), Commit("b", (0,))):
        log.play(event)

    made = log.make()

    assert made is not None
    assert (made.end_offset, made.records) == (4, 3)
    assert offsets_of(log) == [1, 2, 3]


def test_committed_transactions_become_plain_records_and_open_ones_keep_their_producer() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,), 1000))
    log.play(Commit("a", (1,), 1001))
    log.play(Marker(1000, is_commit=True))

    log.make()

    found = [(header.producer_id, header.is_transactional) for header, _ in batches_of(log)]
    assert found == [(-1, False), (1001, True)]


def test_aborted_records_markers_and_tombstones_are_left_out() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,), 1000))
    log.play(Marker(1000, is_commit=False))
    log.play(Commit("a", (1,)))
    log.play(Tombstones("a", (1,)))
    log.add(group_record("a", 1))

    log.make()

    assert offsets_of(log) == [4]


def test_a_tombstone_also_removes_offsets_that_are_pending() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,), 1000))
    log.play(Tombstones("a", (0,)))
    log.play(Commit("b", (0,)))

    log.make()
    log.play(Marker(1000, is_commit=True))

    assert offsets_of(log) == [2]
    assert log.load()[0] == log.state()


def test_an_offset_that_was_committed_while_an_older_one_was_pending_stays() -> None:
    """The marker comes after the checkpoint: the older offset must not replace the newer one."""
    log = CheckpointedLog()
    log.play(Commit("a", (0,), 1000))
    log.play(Commit("a", (0,)))
    log.make()
    log.play(Marker(1000, is_commit=True))

    log.make()

    assert offsets_of(log) == [1]
    assert log.load()[0] == log.state()


def test_a_marker_of_a_later_epoch_ends_the_transaction() -> None:
    """As with KIP-890, in which the epoch grows with each transaction."""
    log = CheckpointedLog()
    log.add_pairs([_pair()], producer_id=7, producer_epoch=3)
    log.make()
    log.end(7, is_commit=True, epoch=4)

    log.make()

    ((header, _),) = batches_of(log)
    assert not header.is_transactional
    assert log.load()[0] == log.state()


def _pair() -> tuple[bytes, bytes]:
    record = commit(0, 5)
    assert record.value is not None
    return write_key(record.key), write_value(record.value)


def test_a_value_that_a_load_ignores_does_not_replace_the_one_before() -> None:
    log = CheckpointedLog()
    key, value = _pair()
    log.add_pairs([(key, value)])
    log.add_pairs([(key, b"\0\3short"), (None, b"no key"), (b"\0", b"short key")])

    log.make()

    assert offsets_of(log) == [0]
    assert log.load()[0] == log.state()


def test_its_digest_is_the_sum_of_its_records() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.play(Commit("b", (1,), 1000))

    made = log.make()

    assert made is not None
    hashes = [
        row_hash(record.key or b"", record.value or b"", record.offset, header.producer_id)
        for header, records in batches_of(log)
        for record in records
    ]
    assert made.digest == sum(hashes) % 2**128


def row_hash(key: bytes, value: bytes, offset: int, producer_id: int) -> int:
    """Returns the hash of a record (`protocol/records/row_sum.h`)."""
    place = offset + producer_id * 0x9E3779B185EBCA87
    seeds = place % 2**64, (place + 0xC2B2AE3D27D4EB4F) % 2**64
    hashes = [
        xxhash.xxh3_128_intdigest(data, seed)
        for data, seed in zip((key, value), seeds, strict=True)
    ]
    return sum(hashes)


def test_equal_states_give_equal_batches_however_the_log_was_cleaned() -> None:
    log = CheckpointedLog()
    for number in range(5):
        log.play(Commit("a", (0, 1)))
        log.add(group_record("a", number))
    log.make()
    before = batches_of(log)
    log.put(None)
    log.clean()

    log.make()

    assert batches_of(log) == before


def test_the_next_one_is_made_from_the_last_one_and_the_log_after_it() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.make()
    before = log.log.log_end_offset
    log.play(Commit("a", (0,)))
    _damage_below(log, before)

    made = log.make()

    assert made is not None
    assert offsets_of(log) == [1, 2]


def _damage_below(log: CheckpointedLog, offset: int) -> None:
    """Change the first batch, which a pass over the last checkpoint does not read."""
    assert offset == 2
    path = log.log.segments[0].path(".log")
    log.fs.overwrite(path, 70, b"\xff")


def test_without_anything_new_none_is_made() -> None:
    log = CheckpointedLog()
    assert log.make() is None
    log.play(Commit("a", (0,)))
    assert log.make() is not None

    assert log.make() is None


def test_a_damaged_checkpoint_is_replaced_by_one_of_the_whole_log() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))
    log.make()
    data = bytearray(log.checkpoint or b"")
    data[80] ^= 1
    log.put(bytes(data))
    log.play(Commit("b", (0,)))

    made = log.make()

    assert made is not None
    assert offsets_of(log) == [0, 1]


def test_keys_without_room_are_left_to_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner.checkpoints.making.SPARE_KEYS", 4)
    log = CheckpointedLog()
    for number in range(10):
        log.add(commit(number, number))

    ends = []
    while (made := log.make(memory_bytes=0)) is not None:
        ends.append(made.end_offset)
        assert log.load()[0] == log.state()

    assert ends == [4, 8, 10]


def test_a_pass_that_swaps_segments_meanwhile_does_not_change_what_it_reads() -> None:
    log = CheckpointedLog()
    for _ in range(3):
        log.play(Commit("a", (0, 1)))
    log.roll()
    log.play(Commit("a", (0,)))
    expected = log.state()
    log.fs.on_operation = _once(log, lambda: log.execute(log.plan()))

    made = log.make()

    assert made is not None
    assert made.records == 2
    assert log.load()[0] == expected


def _once(log: CheckpointedLog, work: Callable[[], object]) -> Callable[[str, str], None]:
    """Do some work when the part is created."""

    def operation(action: str, path: str) -> None:
        if path.endswith(PART):
            log.fs.on_operation = None
            work()

    return operation


def test_a_truncation_meanwhile_ends_it_and_leaves_the_last_one() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.make()
    before = log.checkpoint
    log.play(Commit("a", (0,)))
    log.play(Commit("b", (0,)))
    log.fs.on_operation = _once(log, lambda: log.log.truncate_to(Offset(3)))

    with pytest.raises(CleaningAborted):
        log.make()

    assert log.checkpoint == before
    assert not log.fs.exists(PATH + PART)


def test_a_full_disk_leaves_the_last_one() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))
    log.make()
    before = log.checkpoint
    log.play(Commit("a", (0,)))

    def fail(action: str, path: str) -> None:
        if path.endswith(PART) and action == "append to":
            raise DiskError("write", path, 28, "no space")

    log.fs.on_operation = fail
    with pytest.raises(DiskError):
        log.make()

    log.fs.on_operation = None
    assert log.checkpoint == before


def test_it_stands_beside_the_partitions_directory() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))
    before = log.files()

    log.make()

    assert log.files() == before
    assert PATH == DIRECTORY + ".checkpoint"


def test_of_transactional_ids_the_last_record_of_each_stays() -> None:
    log = CheckpointedLog()
    log.add_pairs([(b"x", b"1"), (b"y", b"1")])
    log.add_pairs([(b"x", b"2"), (b"y", None), (b"z", b"1")])

    log.make(has_commits=False)

    assert offsets_of(log) == [2, 4]
