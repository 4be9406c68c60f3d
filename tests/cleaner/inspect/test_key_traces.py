"""The search for several keys by their hashes: complete, and a proof if nothing is found."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import pytest

from cleaner.inspect.key_traces import FEW_KEYS, KeyTraces, trace_keys
from cleaner.kernel.kernel import siphash128
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.compaction_strategy import Ranking
from tests.harness.compacted_log import CONFIG, DIRECTORY, HASH_KEY, CompactedLog, meter_of
from tests.harness.log_builder import valid
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.transactional_producer import TransactionalProducer


def hash_of(key: bytes) -> bytes:
    return siphash128(HASH_KEY, key)


def traced(
    log: CompactedLog,
    *keys: bytes,
    start: int = 0,
    end: int = OFFSET_MAX,
    trusts_sidecars: bool = False,
) -> KeyTraces:
    view = log.log.cleaning_view(as_if_rolled=True)
    return trace_keys(
        view,
        [hash_of(key) for key in keys],
        log.settings,
        meter=meter_of(log.log, view.generation),
        start_offset=Offset(start),
        end_offset=Offset(end),
        trusts_sidecars=trusts_sidecars,
    )


def found(traces: KeyTraces) -> dict[bytes, tuple[int, int, int]]:
    return {
        key_hash: (trace.count, trace.first_offset, trace.last_offset)
        for key_hash, trace in traces.traces.items()
    }


@pytest.mark.parametrize("trusts_sidecars", [True, False])
@pytest.mark.parametrize("keys_count", [3, FEW_KEYS + 5])
def test_it_finds_what_is_there_with_sidecars_and_without(
    trusts_sidecars: bool, keys_count: int
) -> None:
    random, log = Random(keys_count), CompactedLog()
    keys = [b"key-%d" % number for number in range(2 * keys_count)]
    written: dict[bytes, list[int]] = {}
    for _ in range(60):
        key = random.choice(keys)
        value = None if random.random() < 0.2 else b"value"
        written.setdefault(key, []).append(log.log.log_end_offset)
        log.append((key, value), codec=random.choice([Codec.NONE, Codec.LZ4]))
        if random.random() < 0.2:
            log.roll()
    log.execute(log.plan())  # The sealed segments have sidecars, the active one has none.
    left = {record.offset for record in log.records()}
    sought = keys[:keys_count]

    traces = traced(log, *sought, trusts_sidecars=trusts_sidecars)

    expected = {
        hash_of(key): [offset for offset in written.get(key, ()) if offset in left]
        for key in sought
    }
    assert found(traces) == {
        key_hash: (len(offsets), offsets[0], offsets[-1])
        for key_hash, offsets in expected.items()
        if offsets
    }
    assert traces.records == len(left)


def test_bounds_leave_out_what_is_outside() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.append((b"a", b"3"))

    assert found(traced(log, b"a", end=3)) == {hash_of(b"a"): (2, 0, 2)}
    assert found(traced(log, b"a", start=1)) == {hash_of(b"a"): (2, 2, 3)}
    assert found(traced(log, b"a", start=1, end=2)) == {}
    assert traced(log, b"a", start=1, end=2).first_offset(hash_of(b"a")) == OFFSET_MAX


def test_records_of_open_and_aborted_transactions_count() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"1"))
    producer.abort()
    producer.send((b"b", b"1"))

    traces = traced(log, b"a", b"b")

    assert traces.traces.keys() == {hash_of(b"a"), hash_of(b"b")}


def test_a_proof_trusts_no_sidecar() -> None:
    log = CompactedLog(sidecars=SidecarMode.KEPT)
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.clean()
    (path,) = [name for name in log.files() if name.endswith(".keys")]
    other = CompactedLog()
    other.append_segment((b"c", b"1"), (b"b", b"1"))
    other.clean()
    # A sidecar that is sound, and of another log with segments of the same name and size.
    log.fs.write_bytes(f"{DIRECTORY}/{path}", other.fs.read_bytes(f"{DIRECTORY}/{path}"))

    assert found(traced(log, b"a", trusts_sidecars=True)) == {}
    assert found(traced(log, b"a")) == {hash_of(b"a"): (1, 0, 0)}


def test_damage_in_a_sidecar_adds_nothing_twice() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.clean()
    (path,) = [name for name in log.files() if name.endswith(".keys")]
    data = bytearray(log.fs.read_bytes(f"{DIRECTORY}/{path}"))
    data[70] ^= 1
    log.fs.write_bytes(f"{DIRECTORY}/{path}", bytes(data))

    assert found(traced(log, b"a", trusts_sidecars=True)) == {hash_of(b"a"): (1, 0, 0)}


@pytest.mark.parametrize("trusts_sidecars", [True, False])
def test_the_highest_version_is_found(trusts_sidecars: bool) -> None:
    config = replace(
        CONFIG,
        compaction_strategy=Ranking.HEADER.value,
        compaction_strategy_header="version",
    )
    log = CompactedLog(config)
    for version in (3, 9, 5):
        headers = (("version", struct.pack(">q", version)),)
        record = Record(offset=0, timestamp=1, key=b"a", value=b"v", headers=headers)
        log.append_batch(valid(build_batch([record])))
    log.append((b"b", b"v"))
    log.roll()

    (trace,) = traced(log, b"a", trusts_sidecars=trusts_sidecars).traces.values()

    assert trace.highest_version == 9
