"""Millions of records in six topics with different features of the cleaner, and a broker that is killed.

    ranked      versions in a header decide (compaction.strategy), and passes are undone
    versions    the last three values of each key stay, beside a segment that is damaged at times
    thinned     the last value of each hour stays
    expiring    a third of the values expires at once
    spared      segments are spared (min.segment.dead.ratio), passes undone, and keys erased
    moved       the policy changes to delete and back, and records without a key are moved

One idempotent producer for each topic sends again what was not acknowledged. In the end each topic must
have exactly what follows from the number of its records, each byte as it was sent.

Three of them compare keys byte by byte.

KOMPAKT_FEATURE_RECORDS sets how many records there are in all, KOMPAKT_SOAK_SEED repeats the choices.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from bench.base.raw_protocol import fetch_head, fetch_request
from metrics import partition_names
from protocol.records.record_batch import Record
from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.asked_broker import ask
from tests.harness.broker_process import samples
from tests.harness.clients import create_topic
from tests.harness.damaged_segment import DamagedSegment
from tests.harness.feature_records import (
    KINDS,
    TTL_HEADER,
    VERSION_HEADER,
    UnkeyedRecords,
    with_number,
)
from tests.harness.feature_site import LAST_KEY, Site, TopicWriter
from tests.harness.log_builder import records_in
from tests.harness.numbered_records import (
    HEADER,
    PRODUCER_ID,
    RECORDS_A_BATCH,
    Offsets,
)
from tests.harness.raw_connection import RawConnection
from tests.harness.verification import errors_in

RECORDS = int(os.environ.get("KOMPAKT_FEATURE_RECORDS", "90000"))
BATCHES_A_TOPIC = max(RECORDS // len(KINDS) // RECORDS_A_BATCH, 1)
KEYS = max(RECORDS // len(KINDS) // 20, 500)
KILLS = max(RECORDS // 1_000_000, 3)
CHECKED_KILLS = 10
"""After one of so many kills all files are verified."""
ACTS_A_LIFE = 4
"""So often an operator undoes a pass, or erases a key."""
SECONDS_TO_CLEAN = min(RECORDS / 2_000_000, 15.0)
"""So long a life of the broker lasts for its passes, at most."""
ANSWER_BYTES_MAX = 8 << 20
SECONDS_TO_CONVERGE_MAX = 60.0 + RECORDS / 50_000

BASE = {
    "cleanup.policy": "compact",
    "segment.bytes": str(max(RECORDS // 8, 1 << 20)),
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "1000",
}
UNDO = {"compaction.undo.ms": "60000"}
COMPARED = {"compaction.compare.keys": "true"}
CONFIGS: Mapping[str, Mapping[str, str]] = {
    "ranked": {
        "compaction.strategy": "header",
        "compaction.strategy.header": VERSION_HEADER.decode(),
        **COMPARED,
        **UNDO,
    },
    "versions": {"compaction.versions": "3", **COMPARED},
    "thinned": {"compaction.thinning": "one per 1h for 11y"},
    "expiring": {"compaction.ttl.header": TTL_HEADER.decode()},
    "spared": {"min.segment.dead.ratio": "0.3", **COMPARED, **UNDO},
    "moved": {"compaction.unkeyed.records": "move", "compaction.unkeyed.topic": "aside"},
}
ERASED_TOPIC, DAMAGED_TOPIC = "spared", "versions"
FINAL = {"min.cleanable.dirty.ratio": "0", "min.segment.dead.ratio": "0"}


def batches_of(port: int, topic: str, end: int) -> Iterator[memoryview]:
    """Yields all batches of a topic's only partition below an offset."""
    position = 0
    with RawConnection(port, timeout=60) as connection:
        while position < end:
            connection.send(fetch_request(topic, 0, position, bytes_max=ANSWER_BYTES_MAX))
            answer = connection.receive()
            error_code, size, at = fetch_head(answer)
            assert error_code == 0, f"{topic}: Fetch at {position} answered {error_code}"
            view, first = memoryview(answer)[at : at + size], position
            while len(view) >= HEADER.size:
                base, length = struct.unpack_from(">qi", view)
                if 12 + length > len(view):
                    break
                assert base + struct.unpack_from(">i", view, 23)[0] >= position
                yield view[: 12 + length]
                position = base + struct.unpack_from(">i", view, 23)[0] + 1
                view = view[12 + length :]
            if position == first:
                return  # What is left ends with an empty part of a cleaned segment.


def found_in(site: Site, writer: TopicWriter, end: int) -> tuple[Offsets, list[Record]]:
    """Returns the numbers of the records that are in a topic, each as it was sent and at its offset, and
    the records of others: the tombstones of the broker, and the last one."""
    found, others = [np.empty(0, np.int64)], list[Record]()
    for batch in batches_of(site.broker.port, writer.topic, end):
        if struct.unpack_from(">q", batch, 43)[0] != PRODUCER_ID:
            others += records_in(bytes(batch))
            continue
        base_offset, numbered = with_number(batch)
        (first,) = struct.unpack_from(">q", numbered)
        (count,) = struct.unpack_from(">i", batch, 57)
        assert writer.base_offsets[first // RECORDS_A_BATCH] == base_offset
        if writer.records.has_keys(first):
            found.append(writer.records.check(numbered))
        else:
            found.append(np.arange(first, first + count, dtype=np.int64))
    return np.concatenate(found), others


def end_of(site: Site, topic: str) -> int:
    (end,) = samples(site.broker.metrics(), partition_names.LOG_END_OFFSET.name, topic=topic)
    return int(end)


def expected_of(writer: TopicWriter, erased: Mapping[int, int]) -> Offsets:
    """Returns the numbers of the records that must be left of a topic."""
    expected = writer.records.left(writer.next)
    if writer.topic == ERASED_TOPIC and erased:
        keys = writer.records.keys_of(expected)
        below = np.array([erased.get(int(key), -1) for key in keys], np.int64)
        expected = expected[writer.offsets_of(expected) >= below]
    return expected


def difference(site: Site, writer: TopicWriter, expected: Offsets) -> str:
    """Returns what is too much in a topic so far. Nothing may be missing."""
    numbers, others = found_in(site, writer, end_of(site, writer.topic))
    tombstones = [each for each in others if each.key != LAST_KEY]
    assert all(each.value is None for each in tombstones), "the broker has appended values"
    missing = np.setdiff1d(expected, numbers)
    assert not len(missing), f"{writer.topic}: {len(missing)} values are gone: {missing[:9]}"
    surplus = np.setdiff1d(numbers, expected)
    # The last record of a log stays, and it may be a tombstone.
    if len(surplus) or len(tombstones) > 1:
        return f"{writer.topic}: {len(surplus)} records, {len(tombstones)} tombstones too many"
    return ""


def origins_of(site: Site, topic: str) -> int:
    """Returns how many different records were moved to a topic."""
    records = [
        record
        for batch in batches_of(site.broker.port, topic, end_of(site, topic))
        for record in records_in(bytes(batch))
    ]
    return len({dict(record.headers)["kompakt.origin.offset"] for record in records})


@pytest.mark.crash
def test_every_feature_at_once_loses_nothing_and_brings_nothing_back_across_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KOMPAKT_SOAK_SEED", str(random.randrange(1 << 32))))
    print(f"KOMPAKT_SOAK_SEED={seed}")  # noqa: T201  pytest shows it with a failure
    choices, site, started = random.Random(seed), Site(tmp_path), time.monotonic()
    writers = [TopicWriter(site, kind(KEYS, seed)) for kind in KINDS]
    erased: dict[int, int] = {}
    damaged: DamagedSegment | None = None
    site.broker.start()
    create_topic(site.broker.bootstrap_servers, "aside", config={"retention.ms": "-1"})
    for topic, config in CONFIGS.items():
        create_topic(site.broker.bootstrap_servers, topic, config={**BASE, **config})
    try:
        for life in range(1, KILLS + 2):
            for writer in writers:
                writer.connect()
            end = BATCHES_A_TOPIC * life // (KILLS + 1)
            write_up_to(end, writers, site, erased, choices)
            if life <= KILLS:
                site.let_clean(len(CONFIGS), SECONDS_TO_CLEAN)
                # The moment is as random as the passes are long.
                time.sleep(choices.uniform(0, SECONDS_TO_CLEAN / 10))
                site.broker.kill()
                site.done["kills"] += 1
                if life % CHECKED_KILLS == 0 and damaged is None:
                    assert errors_in(ReadOnlyFileSystem(), str(site.broker.data_dir)) == []
                damaged = site.damage_or_repair(DAMAGED_TOPIC, damaged, choices)
                site.broker.start()
        for writer in writers:
            writer.finish()
        assert site.broker.stop() == 0
        if damaged is not None:
            damaged.repair()
        site.broker.start()
        left = converge(site, writers, erased)
    finally:
        for writer in writers:
            writer.close()
        site.broker.__exit__(None)
    assert errors_in(ReadOnlyFileSystem(), str(site.broker.data_dir)) == []
    site.check_ledger()
    with capsys.disabled():
        print(report(site, writers, left, time.monotonic() - started))  # noqa: T201


def write_up_to(
    end: int,
    writers: list[TopicWriter],
    site: Site,
    erased: dict[int, int],
    choices: random.Random,
) -> None:
    """Write batches in turn, and let operators do something now and then."""
    begin = writers[0].next // RECORDS_A_BATCH
    acts = sorted(choices.choices(range(begin, end), k=ACTS_A_LIFE))
    while any(writer.next < end * RECORDS_A_BATCH for writer in writers):
        for writer in writers:
            if writer.next < end * RECORDS_A_BATCH:
                writer.write()
        if acts and writers[0].next // RECORDS_A_BATCH >= acts[0]:
            acts.pop(0)
            if choices.random() < 0.5:
                site.undo(choices.choice(["ranked", "spared"]))
            else:
                key = choices.randrange(KEYS)
                erased[key] = site.erase(ERASED_TOPIC, key)


def converge(site: Site, writers: list[TopicWriter], erased: Mapping[int, int]) -> int:
    """Wait until each topic has what must be left and no more. Returns how many records that is."""
    for topic in CONFIGS:
        values = {name.replace(".", "_"): value for name, value in FINAL.items()}
        site.alter(topic, **values)
        site.produce_last(topic)
        ask(site.broker, "POST", f"/topics/{topic}/now")
    deadline = time.monotonic() + SECONDS_TO_CONVERGE_MAX
    expected = {each: expected_of(each, erased) for each in writers}
    while found := [
        text for each, numbers in expected.items() if (text := difference(site, each, numbers))
    ]:
        assert time.monotonic() < deadline, "; ".join(found)
        time.sleep(0.3)
    for each in writers:
        if isinstance(each.records, UnkeyedRecords):
            assert origins_of(site, "aside") == each.records.unkeyed(each.next)
    while not_certified := site.erasures_not_certified():
        assert time.monotonic() < deadline, not_certified
        time.sleep(0.3)
    return sum(len(each) for each in expected.values())


def report(site: Site, writers: list[TopicWriter], left: int, seconds: float) -> str:
    """What was done and seen, for people."""
    records = sum(writer.next for writer in writers)
    done = ", ".join(f"{count} {what}" for what, count in sorted(site.done.items()))
    return (
        f"\n{records} records of {KEYS} keys in each of {len(writers)} topics, {left} left,"
        f" {seconds:.0f} s\n{done}; 0 mismatches"
    )
