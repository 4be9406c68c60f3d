"""The search by key sidecars finds the same as reading the whole log, and reads fewer bytes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.inspect.key_search import HITS_MAX, KeyHistory, find_key, key_history, read_segment
from cleaner.kernel.find_key import KeyFinder
from cleaner.passes.index import SegmentIndex
from cleaner.rules.hold import NO_HOLD
from protocol.records.record_batch import Codec
from storage.files.paths import KEYS
from storage.formats.key_sidecar import CHECKSUM_BYTES, HEADER_BYTES, TRAILER_BYTES, sealed
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog, meter_of
from tests.harness.key_blocks import hash_of
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.transactional_producer import TransactionalProducer
from tests.properties.cleaning_history import History
from tests.properties.cleaning_steps import APPENDS, ENDS, Clean, Roll, Step
from tests.properties.cleaning_steps import KEYS as DRAWN_KEYS

PLENTY = 1 << 20


def searched(log: CompactedLog, key: bytes) -> tuple[KeyHistory, int]:
    """Returns the records found with the existing sidecars, and the bytes read."""
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)
    found = find_key(view, key, log.settings, meter=meter, now_ms=log.now_ms)
    return found, meter.bytes_read


def read(log: CompactedLog, key: bytes) -> tuple[KeyHistory, int]:
    """Returns the records found by reading the whole log."""
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)
    finder = KeyFinder(key, decompressed_bytes_max=PLENTY, hits_max=HITS_MAX)
    for segment in view.segments:
        read_segment(segment, finder, chunk_bytes=PLENTY, meter=meter)
    found = key_history(view, key, finder.hits, finder.count, now_ms=log.now_ms, hold=NO_HOLD)
    return found, meter.bytes_read


def make_sidecars(log: CompactedLog) -> None:
    """Make every sealed segment's sidecar, without cleaning."""
    view = log.log.cleaning_view()
    with SegmentIndex(view.hash_key, log.settings, meter_of(log.log, view.generation)) as index:
        index.index_segments(view.segments)


def indexed_log() -> CompactedLog:
    """Returns two sealed segments with sidecars; the first has a key among large records of others."""
    log = CompactedLog(replace(CONFIG, segment_bytes=1))
    log.append((b"a", b"1"))
    for number in range(20):
        log.append((b"other %d" % number, b"v" * 5000))
    log.append((b"b", b"1"))
    log.clean()
    return log


def test_only_the_batches_of_the_key_are_read() -> None:
    log = indexed_log()

    found, bytes_read = searched(log, b"a")
    expected, all_bytes = read(log, b"a")

    assert found == expected
    assert found.count == 1
    assert bytes_read < all_bytes / 5
    assert searched(log, b"none")[0].is_gone


def test_a_batch_with_several_records_of_the_key_is_read_once() -> None:
    log = CompactedLog()
    for codec in Codec:
        log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
        log.append((b"b", b"v" * 5000))
    log.roll()
    make_sidecars(log)

    assert searched(log, b"a")[0] == read(log, b"a")[0]
    assert searched(log, b"a")[0].count == 2 * len(Codec)


def test_a_key_with_many_records_is_read_block_by_block() -> None:
    log = CompactedLog(sidecars=SidecarMode.KEPT)
    for number in range(50):
        log.append((b"a", b"%d" % number))
    log.roll()
    make_sidecars(log)

    assert searched(log, b"a")[0] == read(log, b"a")[0]


def test_a_marker_in_a_later_segment_decides() -> None:
    log = CompactedLog()
    producer, other = TransactionalProducer(log, 7), TransactionalProducer(log, 8)
    producer.send((b"a", b"1"))
    other.send((b"a", b"2"))
    log.roll()
    log.append((b"b", b"1"))
    producer.abort()
    log.roll()
    log.append((b"b", b"2"))
    other.commit()
    log.roll()
    make_sidecars(log)

    found = searched(log, b"a")[0]

    assert found == read(log, b"a")[0]
    assert [record.hit.decision.value for record in found.records if record.hit.decision] == [
        "aborted",
        "committed",
    ]


def first_sidecar(log: CompactedLog) -> str:
    (name,) = (each for each in log.files() if each.endswith(KEYS) and each.startswith("0" * 20))
    return f"{DIRECTORY}/{name}"


def test_one_that_is_damaged_or_of_another_time_is_passed_over_and_stays() -> None:
    log = indexed_log()
    expected = read(log, b"a")[0]
    path = first_sidecar(log)
    sound = log.fs.read_bytes(path)

    for data in (sound[:70] + bytes([sound[70] ^ 1]) + sound[71:], sound[:-1], b""):
        log.fs.write_bytes(path, data)
        assert searched(log, b"a")[0] == expected
        assert log.fs.read_bytes(path) == data


def test_one_that_tells_of_a_record_that_is_not_there_is_not_believed() -> None:
    log = indexed_log()
    path = first_sidecar(log)
    sound = log.fs.read_bytes(path)
    # Its checksums are right, so it was wrong when it was written.
    block = sound[HEADER_BYTES : -TRAILER_BYTES - CHECKSUM_BYTES]
    hash_key = log.log.identity.hash_key
    lying = sealed(block.replace(hash_of(hash_key, b"a"), hash_of(hash_key, b"c")))
    log.fs.write_bytes(path, sound[:HEADER_BYTES] + lying + sound[-TRAILER_BYTES:])

    assert searched(log, b"c")[0].is_gone
    assert searched(log, b"c")[1] > log.log.segments[0].size, "it was read"


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.one_of(APPENDS, APPENDS, ENDS, st.just(Roll()), st.just(Clean())), max_size=25
    ),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    mode=st.sampled_from([SidecarMode.KEPT, SidecarMode.MISSING, SidecarMode.DAMAGED]),
    key=DRAWN_KEYS,
    seed=st.integers(0, 1 << 16),
)
def test_it_finds_what_reading_finds(
    steps: list[Step], segment_bytes: int, mode: SidecarMode, key: bytes, seed: int
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=segment_bytes))
    history = History(log)
    for step in steps:
        history.take(step)
    make_sidecars(log)
    mode.happen(log.fs, DIRECTORY, Random(seed))

    assert searched(log, key)[0] == read(log, key)[0]
