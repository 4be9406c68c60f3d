"""Compressed batches in which nothing changes are not inflated, once their keys were checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.hold import Hold
from protocol.records.record_batch import Codec
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar
from storage.files.paths import KEYS, LOG
from storage.formats.key_sidecar import header_of, key_block, sealed
from storage.segment.cleaned_segment import CleanedSegmentWriter
from tests.harness.compacted_log import (
    CONFIG,
    HASH_KEY,
    SETTINGS,
    CompactedLog,
    read_bytes,
)
from tests.harness.random_log import random_log
from tests.harness.rehearsal import check_prediction
from tests.harness.sidecar_lies import LIES_OF_ENTRIES, Change, places_of_entries, unchecked
from tests.harness.transactional_producer import TransactionalProducer

RETENTION_MS = CONFIG.delete_retention_ms
VALUE = b"value" * 20


def checked_log(codec: Codec = Codec.LZ4) -> CompactedLog:
    """Returns a cleaned log of one segment with three batches, whose keys a pass has checked."""
    log = CompactedLog()
    log.append((b"a", VALUE), (b"b", VALUE), codec=codec)
    log.append((b"c", VALUE), (b"d", VALUE), codec=codec)
    log.append((b"e", b"old"), (b"f", VALUE), codec=codec)
    log.append((b"e", b"new"), codec=codec)
    log.clean()
    return log


def keys_checked(log: CompactedLog) -> list[bool]:
    """Returns what the sidecar of each sealed segment says about its keys."""
    sidecars = [each.key_sidecar(HASH_KEY) for each in log.log.cleaning_view().segments]
    return [sidecar.header.keys_checked for sidecar in sidecars if sidecar is not None]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_is_inflated_by_the_pass_that_checks_its_keys_and_not_again(codec: Codec) -> None:
    log = checked_log(codec)
    assert keys_checked(log) == [True]
    first_two = read_bytes(log.log, 0)[: sum(each.size_bytes for each in log.headers()[:2])]

    log.append_segment((b"f", b"new"), (b"g", b"1"))
    report = log.execute(log.plan())

    # Of the four batches of that segment one loses a record, and is inflated.
    assert (report.groups, report.batches_unread) == (1, 3)
    assert read_bytes(log.log, 0)[: len(first_two)] == first_two
    assert [record.key for record in log.records()] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert "3 batches copied without being inflated" in str(report)


def test_without_compression_no_sidecar_is_read_again_and_each_key_is_hashed() -> None:
    log = checked_log(Codec.NONE)

    log.append_segment((b"f", b"new"))
    report = log.execute(log.plan())

    assert (report.groups, report.batches_unread, report.keys_to_check_bytes) == (1, 0, 0)
    assert keys_checked(log) == [False]


def test_a_pass_that_does_not_verify_checks_no_keys() -> None:
    log = CompactedLog(settings=replace(SETTINGS, verify=False))
    log.append((b"a", VALUE), (b"b", VALUE), codec=Codec.ZSTD)
    log.append((b"b", VALUE), codec=Codec.ZSTD)

    log.clean()

    assert keys_checked(log) == [False]


def test_a_rehearsal_foretells_what_a_pass_reads_of_checked_keys() -> None:
    log = checked_log()
    log.append((b"f", b"new"))

    foretold, report = check_prediction(log)

    assert (foretold.report.batches_unread, report.batches_unread) == (3, 3)
    segment = log.log.cleaning_view().segments[0]
    sidecar = segment.key_sidecar(HASH_KEY)
    assert sidecar is not None
    assert report.keys_to_check_bytes == sidecar.blocks_bytes


# ------------------------------------------------------------------------ what is not untouched


def test_a_tombstone_that_waits_for_its_clock_is_stamped_and_one_that_is_due_goes() -> None:
    log = CompactedLog()
    log.append((b"a", VALUE), (b"t", None), codec=Codec.ZSTD)
    log.append((b"b", b"1"), (b"c", VALUE), codec=Codec.ZSTD)
    log.append((b"b", b"2"), codec=Codec.ZSTD)
    log.clean()
    stamped = log.headers()[0]
    assert stamped.delete_horizon_ms is not None

    log.append_segment((b"c", b"new"))
    not_due = log.execute(log.plan())
    assert log.headers()[0] == stamped
    log.now_ms += RETENTION_MS
    log.append_segment((b"d", b"1"))
    log.execute(log.plan())

    assert not_due.batches_unread == 2
    assert b"t" not in [record.key for record in log.records()]


def test_a_due_tombstone_that_is_held_is_judged_by_its_record() -> None:
    log = CompactedLog()
    log.append((b"a", VALUE), (b"t", None), codec=Codec.ZSTD)
    log.append((b"b", b"1"), (b"c", VALUE), codec=Codec.ZSTD)
    log.clean()
    log.hold = Hold(offset=Offset(0), by="a group")
    log.now_ms += RETENTION_MS
    log.append_segment((b"b", b"2"))

    report = log.execute(log.plan())

    assert report.records_by_verdict["kept_held"] == 1
    assert report.batches_unread == 0


def test_a_batch_with_a_record_without_a_key_is_inflated() -> None:
    log = CompactedLog(replace(CONFIG, compaction_unkeyed_records="keep"))
    log.append((b"a", VALUE), (None, VALUE), codec=Codec.ZSTD)
    log.append((b"b", b"1"), (b"c", VALUE), codec=Codec.ZSTD)
    log.append((b"b", b"2"), codec=Codec.ZSTD)
    log.clean()

    log.append_segment((b"c", b"2"))
    report = log.execute(log.plan())

    assert report.batches_unread == 1
    assert report.records_by_verdict["kept_unkeyed"] == 1


def test_a_batch_beyond_the_end_of_the_pass_is_copied_unread_so_its_keys_count_as_unchecked() -> (
    None
):
    log = CompactedLog()
    log.append((b"a", VALUE), (b"b", b"1"), codec=Codec.ZSTD)
    log.append((b"b", b"2"), (b"c", b"2"), codec=Codec.ZSTD)
    open_one = TransactionalProducer(log, 1)
    open_one.send((b"d", b"1"))
    log.append((b"e", VALUE), codec=Codec.ZSTD)
    log.roll()

    report = log.execute(log.plan())

    assert (report.groups, report.end_offset) == (1, 4)
    assert keys_checked(log) == [False]


# ----------------------------------------------------------------------------------- checks


def test_the_checksum_of_a_batch_is_checked_before_it_is_copied() -> None:
    log = checked_log()
    path = log.log.segments[0].path(LOG)
    size = log.headers()[0].size_bytes
    log.fs.overwrite(path, size - 1, bytes([log.fs.read_bytes(path)[size - 1] ^ 1]))
    log.append_segment((b"f", b"new"))
    before = log.fs.read_bytes(path)

    report = log.execute(log.plan())

    assert ["its CRC differs" in fence.reason for fence in report.fences] == [True]
    assert log.fs.read_bytes(path) == before


@pytest.mark.parametrize("change", LIES_OF_ENTRIES, ids=lambda each: each.__name__)
def test_a_writer_that_changes_an_entry_is_noticed_before_the_swap(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no later pass trusts an entry that was not compared with its record."""
    log = checked_log()
    log.append_segment((b"f", b"new"))
    before = log.headers()
    write = CleanedSegmentWriter.append_keys

    def write_a_lie(writer: CleanedSegmentWriter, block: bytes, *, keys_checked: bool) -> None:
        lying = bytearray(block)
        at = key_block(block, position=0, first_entry=0).entries_at
        entry = lying[at : at + 24]
        change(entry)
        lying[at : at + 24] = entry
        write(writer, sealed(bytes(lying[:-8])), keys_checked=keys_checked)

    with monkeypatch.context() as patch:
        patch.setattr(CleanedSegmentWriter, "append_keys", write_a_lie)
        with pytest.raises(VerificationFailed, match="the sum of its keys"):
            log.execute(log.plan())

    assert log.headers() == before
    log.execute(log.plan())
    assert log.pairs()[-1] == (7, b"f", b"new")


def test_another_process_cannot_say_that_it_has_checked_keys() -> None:
    log = checked_log()
    segment = log.log.cleaning_view().segments[0]
    path = segment.segment.path(KEYS)
    content = log.fs.read_bytes(path)
    log.fs.write_bytes("made", content)

    with pytest.raises(DamagedSidecar, match="only a pass of this broker"):
        segment.take_key_sidecar("made", HASH_KEY)

    log.fs.write_bytes("made", unchecked(content))
    segment.take_key_sidecar("made", HASH_KEY)


def test_a_header_without_the_flag_is_what_it_was() -> None:
    assert unchecked(header_of(3, 4, HASH_KEY, keys_checked=True)) == header_of(3, 4, HASH_KEY)
    assert header_of(3, 4, HASH_KEY)[14:16] == bytes(2)


# --------------------------------------------------------------------------------- property

Step = Callable[[CompactedLog, Random], None]


@pytest.mark.parametrize("seed", range(20))
def test_outputs_are_the_same_to_the_byte_as_if_each_batch_were_inflated(seed: int) -> None:
    trusting, inflating = CompactedLog(), CompactedLog()
    has_transactions = seed % 4 == 0
    for log in (trusting, inflating):
        random_log(Random(seed), batches=25, keys=40, transactions=has_transactions, into=log)
        log.execute(log.plan())
    unread = 0
    for step in range(3):
        reports = []
        for log in (trusting, inflating):
            random = Random(seed + step)
            random_log(random, batches=4, keys=40, transactions=has_transactions, into=log)
            log.now_ms += Random(seed + step).choice([0, RETENTION_MS])
            if log is inflating:
                forget_checked_keys(log)
            reports.append(log.execute(log.plan()))
        unread += reports[0].batches_unread
        assert reports[1].batches_unread == 0
        assert replace(reports[0], batches_unread=0) == reports[1]
        assert contents(trusting) == contents(inflating)
    # A transaction that is left open ends the passes early.
    assert unread > 0 or has_transactions


def forget_checked_keys(log: CompactedLog) -> None:
    for name in log.files():
        if name.endswith(KEYS):
            path = f"{log.log.directory}/{name}"
            content = log.fs.read_bytes(path)
            if places_of_entries(content):
                log.fs.write_bytes(path, unchecked(content))


def contents(log: CompactedLog) -> dict[str, bytes]:
    """Returns the log's segments and sidecars, without the flag of checked keys."""
    found = {name: log.fs.read_bytes(f"{log.log.directory}/{name}") for name in log.files()}
    return {
        name: unchecked(content) if name.endswith(KEYS) and content else content
        for name, content in found.items()
        if name.endswith((KEYS, LOG))
    }
