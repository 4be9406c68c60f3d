"""An export is the last value of each key at one moment, after any history of log and table."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from storage.files.errors import CorruptLog
from storage.files.paths import LOG
from storage.formats.compaction_strategy import CompactionStrategy, Ranking
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.exported_log import (
    CATALOG,
    FORMATS,
    NAME,
    Rows,
    catalog_properties,
    export_to,
    on_disk,
    rows_in,
    table_in,
    target_of,
)
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_transactions import committed_offsets
from tests.properties.test_transaction_cleaning import STEPS, History

JSON = Payload(
    value_format=PayloadFormat.JSON, value_schema="n BIGINT", key_format=PayloadFormat.STRING
)


def model(history: History) -> Rows:
    """The last values of what a committed reader is sent, tombstones applied."""
    sent = {each.offset: each for each in history.sent}
    last = {sent[at].key: sent[at] for at in committed_offsets(history.log.log)}
    return {
        (0, key): (each.offset, each.value) for key, each in last.items() if each.value is not None
    }


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(STEPS, min_size=2, max_size=20), min_size=1, max_size=3),
    st.sampled_from((100, 1000, 1 << 27)),
    st.sampled_from((16 * 24, 1 << 20)),
)
def test_each_export_is_the_model_though_the_log_is_cleaned_in_between(
    runs: list[list[object]], part_bytes: int, memory_bytes: int
) -> None:
    history = History(CompactedLog(replace(CONFIG, segment_bytes=300), SETTINGS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for steps in runs:
            for step in steps:
                history.do(step)
            log = on_disk(history.log, folder)
            target = target_of("parquet", folder)
            summary = export_to(target, log, part_bytes=part_bytes, memory_bytes=memory_bytes)

            expected = model(history)
            assert (rows_in("parquet", folder) if expected else {}) == expected
            assert summary.rows == len(expected)
            assert summary.cut.offsets == {"orders": {0: history.log.log.last_stable_offset}}


def three_segments() -> CompactedLog:
    log = CompactedLog(replace(CONFIG, segment_bytes=1 << 20), SETTINGS)
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.append_segment((b"b", b"2"), (b"d", b"1"))
    log.append((b"c", None), (b"e", b"1"))
    return log


THREE = {(0, b"a"): (0, b"1"), (0, b"b"): (3, b"2"), (0, b"d"): (4, b"1"), (0, b"e"): (6, b"1")}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_second_export_writes_only_what_changed(kind: str, tmp_path: Path) -> None:
    log = three_segments()
    first = export_to(target_of(kind, tmp_path), on_disk(log, tmp_path), part_bytes=1)
    assert rows_in(kind, tmp_path) == THREE
    assert (first.files_written, first.files_kept) == (3, 0)

    log.append((b"d", b"2"))
    second = export_to(target_of(kind, tmp_path), on_disk(log, tmp_path), part_bytes=1)

    assert rows_in(kind, tmp_path) == {**THREE, (0, b"d"): (7, b"2")}
    assert (second.files_written, second.files_kept) == (2, 1)
    third = export_to(target_of(kind, tmp_path), on_disk(log, tmp_path), part_bytes=1)
    assert (third.files_written, third.files_kept) == (0, 3)
    assert rows_in(kind, tmp_path) == {**THREE, (0, b"d"): (7, b"2")}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_table_says_which_offsets_it_holds(kind: str, tmp_path: Path) -> None:
    assert target_of(kind, tmp_path).held() is None
    export_to(target_of(kind, tmp_path), on_disk(three_segments(), tmp_path))

    held = target_of(kind, tmp_path).held()
    assert held == Cut({"orders": {0: 7}}, {"orders": "AAAAAAAAAAAAAAAAAAAAAQ"})


@pytest.mark.parametrize("kind", FORMATS)
def test_other_columns_replace_those_of_the_table(kind: str, tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b'{"n": 7}'))
    at = on_disk(log, tmp_path)
    export_to(target_of(kind, tmp_path), at)
    export_to(target_of(kind, tmp_path), at, payload=JSON)

    assert rows_in(kind, tmp_path, value="n") == {(0, "a"): (0, 7)}


@pytest.mark.parametrize("kind", FORMATS)
def test_of_two_exports_at_once_the_later_commit_is_refused(kind: str, tmp_path: Path) -> None:
    log = three_segments()
    export_to(target_of(kind, tmp_path), on_disk(log, tmp_path))
    late = target_of(kind, tmp_path)
    log.append((b"a", b"2"))
    at = on_disk(log, tmp_path)
    export_to(target_of(kind, tmp_path), at)

    with pytest.raises(TableRefused, match="at the same moment"):
        export_to(late, at)
    assert rows_in(kind, tmp_path) == {**THREE, (0, b"a"): (7, b"2")}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_without_values_is_a_table_without_rows(kind: str, tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", None))
    summary = export_to(target_of(kind, tmp_path), on_disk(log, tmp_path))

    assert (summary.rows, summary.files_written) == (0, 0)
    assert target_of(kind, tmp_path).held() is not None


@pytest.mark.parametrize("kind", FORMATS)
def test_older_files_than_the_table_are_refused(kind: str, tmp_path: Path) -> None:
    log = three_segments()
    old = on_disk(log, tmp_path / "old")
    log.append((b"a", b"2"))
    export_to(target_of(kind, tmp_path), on_disk(log, tmp_path))
    before = sorted(tmp_path.rglob("*.parquet"))

    with pytest.raises(TableRefused, match="orders-0 up to 8, and these files end at 7"):
        export_to(target_of(kind, tmp_path), old)
    assert rows_in(kind, tmp_path)[0, b"a"] == (7, b"2")
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_a_value_that_cannot_be_read_ends_the_export_and_changes_nothing(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b'{"n": 7}'))
    export_to(target_of("delta", tmp_path), on_disk(log, tmp_path), payload=JSON)
    log.append((b"b", b'{"n": 1} {"n": 2}'))
    before = sorted((tmp_path / "delta").iterdir())

    with pytest.raises(TableRefused, match="orders-0, offset 1: the value is not json"):
        export_to(target_of("delta", tmp_path), on_disk(log, tmp_path), payload=JSON)
    assert rows_in("delta", tmp_path, value="n") == {(0, "a"): (0, 7)}
    assert sorted((tmp_path / "delta").iterdir()) == before


def test_a_value_that_cannot_be_read_is_kept_on_request(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b'{"n": 7}'), (b"b", b"no"))
    payload = replace(JSON, on_unparsable=OnUnparsable.KEEP)
    export_to(target_of("parquet", tmp_path), on_disk(log, tmp_path), payload=payload)

    assert rows_in("parquet", tmp_path, value="n") == {(0, "a"): (0, 7), (0, "b"): (1, None)}
    kept = rows_in("parquet", tmp_path, value="_unparsed")
    assert kept == {(0, "a"): (0, None), (0, "b"): (1, b"no")}


def test_only_last_values_are_parsed(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b"no"), (b"a", b'{"n": 7}'))
    export_to(target_of("parquet", tmp_path), on_disk(log, tmp_path), payload=JSON)

    assert rows_in("parquet", tmp_path, value="n") == {(0, "a"): (1, 7)}


def test_a_record_without_a_key_ends_the_export_unless_it_may_be_skipped(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (None, b"2"))
    at = on_disk(log, tmp_path)

    with pytest.raises(TableRefused, match="orders-0, offset 1: the record has no key"):
        export_to(target_of("parquet", tmp_path), at, payload=Payload())
    export_to(target_of("parquet", tmp_path), at)
    assert rows_in("parquet", tmp_path) == {(0, b"a"): (0, b"1")}


def test_keys_that_say_the_same_in_other_bytes_are_one_row(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append_segment((b'{"id":1}', b"old"), (b'{"id":2}', b"other"))
    log.append((b'{"id": 1}', b"new"), (b'{"id": 2}', None))
    payload = Payload(key_format=PayloadFormat.JSON, key_schema="id BIGINT")
    for _ in range(2):
        summary = export_to(
            target_of("delta", tmp_path), on_disk(log, tmp_path), payload=payload, part_bytes=1
        )
        assert summary.rows == 1
        table = rows_of_records(tmp_path)
        assert table == {1: (2, b"new")}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_stays_until_one_of_its_keys_comes_again_in_other_bytes(
    kind: str, tmp_path: Path
) -> None:
    payload = Payload(key_format=PayloadFormat.JSON, key_schema="id BIGINT")
    log = CompactedLog(replace(CONFIG, segment_bytes=1 << 20), SETTINGS)
    log.append_segment((b'{"id":1}', b"1"), (b'{"id":2}', b"2"))
    log.append_segment((b'{"id":3}', b"3"), (b'{"id":4}', b"4"), (b'{"id":5}', None))

    def run() -> tuple[int, int]:
        done = export_to(
            target_of(kind, tmp_path), on_disk(log, tmp_path), payload=payload, part_bytes=1
        )
        return done.files_written, done.files_kept

    assert run() == (2, 0)
    log.append((b'{"id":6}', b"6"))
    # The part with a deletion is read, and gives the same file.
    assert run() == (1, 2)
    log.append((b'{ "id": 2 }', b"new"))
    assert run() == (2, 1)
    assert keys_in(kind, tmp_path) == {1: b"1", 2: b"new", 3: b"3", 4: b"4", 6: b"6"}
    log.append((b'{"id" : 1}', None))
    assert run()[1] == 1
    assert keys_in(kind, tmp_path) == {2: b"new", 3: b"3", 4: b"4", 6: b"6"}


def keys_in(kind: str, folder: Path) -> dict[int, bytes]:
    rows = table_in(kind, folder).to_pylist()
    assert len({row["key"]["id"] for row in rows}) == len(rows)
    return {row["key"]["id"]: row["value"] for row in rows}


def test_equal_keys_of_records_with_versions_are_refused(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b'{"id":1}', b"old"), (b'{"id": 1}', b"new"))
    payload = Payload(key_format=PayloadFormat.JSON, key_schema="id BIGINT")
    strategy = CompactionStrategy(Ranking.TIMESTAMP)

    with pytest.raises(TableRefused, match="orders-0, offset 0: a later key says the same"):
        export_to(
            target_of("delta", tmp_path),
            on_disk(log, tmp_path),
            payload=payload,
            strategy=strategy,
        )
    assert not (tmp_path / "delta" / "_delta_log").exists()


def rows_of_records(folder: Path) -> dict[int, tuple[int, bytes]]:
    rows = table_in("delta", folder).to_pylist()
    return {row["key"]["id"]: (row["_offset"], row["value"]) for row in rows}


def test_with_versions_the_highest_one_is_the_last_value(tmp_path: Path) -> None:
    log = CompactedLog()
    for timestamp, value in ((2000, b"new"), (1000, b"late")):
        log.append_batch(valid(batch_of([(b"a", value)], timestamps=(timestamp,))))
    strategy = CompactionStrategy(Ranking.TIMESTAMP)
    export_to(target_of("parquet", tmp_path), on_disk(log, tmp_path), strategy=strategy)

    assert rows_in("parquet", tmp_path) == {(0, b"a"): (0, b"new")}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_record_ends_the_export_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    log = three_segments()
    log.clean()
    at = on_disk(log, tmp_path)
    export_to(target_of(kind, tmp_path), at)
    log.append((b"z", b"1"))
    at = on_disk(log, tmp_path)
    first = min(path for path in Path(at.directory).iterdir() if path.name.endswith(LOG))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)

    other_rows = Payload(key_format=PayloadFormat.STRING)
    with pytest.raises(CorruptLog, match="at byte"):
        export_to(target_of(kind, tmp_path), at, payload=other_rows)
    assert rows_in(kind, tmp_path) == THREE


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    at = on_disk(three_segments(), tmp_path)
    for kind in ("parquet", "delta"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "notes.txt").write_text("mine")
        with pytest.raises(TableRefused, match="holds other data"):
            export_to(target_of(kind, tmp_path), at)
        assert (tmp_path / kind / "notes.txt").read_text() == "mine"


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    """Files without its partitions would not be its rows."""
    cut = Cut({"orders": {0: 1}}, {"orders": "AAAAAAAAAAAAAAAAAAAAAQ"})
    rows = pa.table({"key": pa.array([b"a"]), "value": pa.array([b"1"])})
    write_deltalake(
        tmp_path / "delta",
        rows,
        partition_by=["key"],
        commit_properties=CommitProperties(custom_metadata={"userMetadata": cut.to_json()}),
    )
    at = on_disk(three_segments(), tmp_path)

    with pytest.raises(TableRefused, match="has partitions by key, which an export does not write"):
        export_to(target_of("delta", tmp_path), at)


def test_a_partitioned_table_in_iceberg_is_refused(tmp_path: Path) -> None:
    at = on_disk(three_segments(), tmp_path)
    export_to(target_of("iceberg", tmp_path), at)
    table = load_catalog(CATALOG, **catalog_properties(tmp_path)).load_table(NAME)
    with table.update_spec() as update:
        update.add_identity("key")

    with pytest.raises(TableRefused, match=r"shop\.orders is partitioned"):
        export_to(target_of("iceberg", tmp_path), at)
    assert rows_in("iceberg", tmp_path) == THREE
