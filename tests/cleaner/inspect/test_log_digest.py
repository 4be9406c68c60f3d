"""The digest of a log's table; properties/test_table_digest.py shows that no pass changes it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from protocol.records.batch_header import TimestampType
from protocol.records.record_batch import Record, build_batch
from protocol.wire.errors import CorruptBatch
from storage.files.paths import LOG
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog
from tests.harness.log_builder import valid
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.table_digest import digest_of, table_digest
from tests.harness.transactional_producer import TransactionalProducer


def test_an_empty_log_has_the_digest_nought() -> None:
    found = digest_of(CompactedLog())

    assert (found.start_offset, found.end_offset, found.keys, found.digest) == (0, 0, 0, 0)


def test_headers_and_their_order_and_a_null_in_them_count() -> None:
    headers = [
        (),
        (("h", b""),),
        (("h", None),),
        (("a", b"1"), ("b", b"2")),
        (("b", b"2"), ("a", b"1")),
        (("ab", b"12"),),
    ]
    digests = []
    for each in headers:
        record = Record(offset=0, timestamp=-1, key=b"", value=b"v", headers=each)
        log = CompactedLog()
        log.append_batch(valid(build_batch([record])))
        digests.append(digest_of(log).digest)
        assert digests[-1] == table_digest([record])
    assert len(set(digests)) == len(headers)


def test_the_brokers_time_is_that_of_each_record() -> None:
    log = CompactedLog(replace(CONFIG, message_timestamp_type="LogAppendTime"))
    records = [Record(offset=at, timestamp=5 + at, key=b"%d" % at, value=b"v") for at in range(3)]
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append_batch(valid(batch))

    appended = [replace(record, timestamp=7) for record in records]
    assert digest_of(log).digest == table_digest(appended)


def test_a_key_that_ends_with_a_tombstone_has_no_value() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"), (b"a", None))

    assert digest_of(log).keys == 1
    assert digest_of(log, 2).keys == 2


def test_an_open_transaction_ends_it_and_an_aborted_one_does_not_count() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"2"))
    producer.abort()
    producer.send((b"a", b"3"))

    found = digest_of(log)

    assert (found.end_offset, found.keys) == (3, 1)
    assert found.digest == table_digest(log.records()[:1])
    with pytest.raises(ValueError, match=r"end offset 4 is not in \[0, 3\]"):
        digest_of(log, 4)


def test_a_transaction_that_began_below_the_stable_end_may_end_above_it() -> None:
    for ends_with_commit in (True, False):
        log = CompactedLog()
        first, second = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
        first.send((b"a", b"1"))
        second.send((b"b", b"1"))
        (first.commit if ends_with_commit else first.abort)()

        found = digest_of(log)

        assert (found.end_offset, found.keys) == (1, int(ends_with_commit))


def test_it_says_how_far_the_log_is_clean() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"), (b"b", b"1"))
    log.clean()

    found = digest_of(log, 1)

    assert (found.clean_offset, found.keys) == (3, 0)


@pytest.mark.parametrize("mode", [SidecarMode.LYING, SidecarMode.DAMAGED])
def test_a_sidecar_that_is_wrong_changes_no_digest_and_stays_where_it_is(mode: SidecarMode) -> None:
    log = CompactedLog(sidecars=SidecarMode.KEPT)
    for number in range(40):
        log.append_segment((b"%d" % (number % 7), b"v%d" % number))
    log.clean()
    before = digest_of(log)
    for seed in range(20):
        mode.happen(log.fs, DIRECTORY, Random(seed))
        files = log.files()
        assert digest_of(log) == before
        assert log.files() == files


def test_damage_is_no_digest() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    name = next(name for name in log.files() if name.endswith(LOG))
    data = bytearray(log.fs.read_bytes(f"{DIRECTORY}/{name}"))
    data[-1] ^= 1
    log.fs.write_bytes(f"{DIRECTORY}/{name}", bytes(data))

    with pytest.raises(CorruptBatch, match="CRC"):
        digest_of(log)
