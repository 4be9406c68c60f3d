from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.dump.command import DumpOptions, dump_log
from cli.dump.segment import Selection
from protocol.records.batch_header import stamp
from protocol.records.control_record import ControlType
from tests.harness.key_blocks import hash_of, keys_of, sidecar_of
from tests.harness.log_builder import batch_of, marker_of

HASH_KEY = bytes(range(16))
BASE = 1000


def segment() -> bytes:
    batches = (
        batch_of([(b"a", b"1"), (None, b"2"), (b"b", None)]),
        batch_of([(b"c", b"3")], producer_id=8, producer_epoch=1, is_transactional=True),
        marker_of(ControlType.COMMIT, 8, 1),
    )
    for batch, offset in zip(batches, (BASE, BASE + 3, BASE + 4), strict=True):
        stamp(batch, base_offset=offset, leader_epoch=0)
    return b"".join(batches)


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    """A key sidecar with three batches in two blocks."""
    path = tmp_path / f"{BASE:020d}.v7.keys"
    path.write_bytes(sidecar_of(segment(), base_offset=BASE, version=7, hash_key=HASH_KEY))
    return path


def dump(path: Path, capsys: pytest.CaptureFixture[str], **asked: Any) -> Iterator[dict[str, Any]]:
    options = DumpOptions(as_json=True, selection=Selection(**asked))
    assert dump_log([path], options) == 0
    return map(json.loads, capsys.readouterr().out.splitlines())


def test_a_sidecar_is_printed_as_its_blocks(
    sidecar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, *blocks = dump(sidecar, capsys)
    sizes = [batch.header.size_bytes for batch in keys_of(segment())]
    assert facts["kind"] == "key sidecar"
    assert (facts["base_offset"], facts["file_version"]) == (BASE, 7)
    assert facts["segment_size"] == sum(sizes)
    assert (facts["entries"], facts["unstamped_tombstones"], facts["unkeyed_records"]) == (3, 1, 1)
    assert [(row["position"], row["data_bytes"]) for row in blocks] == [
        (0, sizes[0] + sizes[1]),
        (sizes[0] + sizes[1], sizes[2]),
    ]
    assert [(row["special_rows"], row["entries"]) for row in blocks] == [(1, 3), (1, 0)]


def test_its_records_are_its_special_rows_and_entries(
    sidecar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *rows = dump(sidecar, capsys, with_records=True)
    assert [(row["what"], row["offset"]) for row in rows] == [
        ("transactional", BASE + 3),
        ("record", BASE),
        ("tombstone", BASE + 2),
        ("record", BASE + 3),
        ("commit", BASE + 4),
    ]
    assert rows[1]["key_hash"] == hash_of(HASH_KEY, b"a").hex()
    assert (rows[0]["producer_id"], rows[0]["producer_epoch"]) == (8, 1)
    assert rows[-1]["flags"] == "is_transactional is_control"


def test_a_part_of_its_records_can_be_asked_for(
    sidecar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *rows = dump(sidecar, capsys, with_records=True, start_offset=BASE + 2, limit=2)
    assert [(row["what"], row["offset"]) for row in rows] == [
        ("transactional", BASE + 3),
        ("tombstone", BASE + 2),
    ]


def test_it_is_printed_as_a_table_too(sidecar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump_log([sidecar], DumpOptions(selection=Selection(with_records=True))) == 0
    printed = capsys.readouterr().out
    assert "key sidecar" in printed
    assert hash_of(HASH_KEY, b"c").hex() in printed


@pytest.mark.parametrize("position", [0, 60, -1])
def test_a_damaged_sidecar_is_told_as_one(
    sidecar: Path, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(sidecar.read_bytes())
    data[position] ^= 1
    sidecar.write_bytes(data)
    assert dump_log([sidecar], DumpOptions()) == 1
    assert "is damaged" in capsys.readouterr().err
