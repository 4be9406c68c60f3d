"""A scan of a segment file finds every sound batch, wherever the chunks end."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.records.batch_tally import BatchTally
from protocol.records.record_batch import Record, build_batch
from storage.batches import scan as scan_module
from storage.batches.scan import scan_file
from storage.files.local_files import LocalFileSystem


def batches(count: int, value_bytes: int, *, first: int = 0) -> list[bytes]:
    return [
        bytes(
            build_batch(
                [Record(offset=at, timestamp=0, key=b"k", value=bytes(value_bytes))],
                base_offset=at,
            )
        )
        for at in range(first, first + count)
    ]


def scanned(path: Path, data: bytes, size: int | None = None) -> tuple[int, int, str]:
    """Returns how many batches (of one record) a scan of `size` bytes finds, where it ends, and why."""
    path.write_bytes(data)
    file = LocalFileSystem().open(str(path))
    tally = BatchTally(base_offset=0, index_interval_bytes=4096)
    end = scan_file(file, len(data) if size is None else size, tally)
    file.close()
    assert tally.position == end.position
    return tally.record_count, end.position, end.reason


@pytest.mark.parametrize("chunk_bytes", [64, 100, 1000, 1500, 4096])
def test_no_sound_batch_is_lost_at_the_end_of_a_chunk(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "CHUNK_BYTES", chunk_bytes)
    written = batches(40, 70) + batches(3, 5000, first=40)

    found, end, reason = scanned(tmp_path / "log", b"".join(written))

    assert found == len(written)
    assert (end, reason) == (sum(map(len, written)), "")


def test_a_file_of_several_chunks_is_read_to_its_end(tmp_path: Path) -> None:
    data = b"".join(batches(6000, 980))
    assert len(data) > scan_module.CHUNK_BYTES * 5

    found, end, reason = scanned(tmp_path / "log", data)

    assert found == 6000
    assert (end, reason) == (len(data), "")


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 100])
def test_a_torn_last_batch_ends_the_scan_where_it_begins(cut: int, tmp_path: Path) -> None:
    whole, torn = b"".join(batches(10, 100)), batches(1, 100)[0]

    found, end, reason = scanned(tmp_path / "log", whole + torn[:cut])

    assert found == 10
    assert end == len(whole)
    assert reason


def test_a_batch_that_claims_two_gigabytes_is_not_read_for(tmp_path: Path) -> None:
    whole, lying = b"".join(batches(5, 10)), bytearray(batches(1, 10)[0])
    lying[8:12] = (2**31 - 1).to_bytes(4, "big")

    found, end, reason = scanned(tmp_path / "log", whole + bytes(lying))

    assert (found, end) == (5, len(whole))
    assert reason


@pytest.mark.parametrize("missing", [1, 200, 5000])
def test_a_file_that_is_cut_meanwhile_ends_the_scan(missing: int, tmp_path: Path) -> None:
    data = b"".join(batches(20, 300))

    found, end, reason = scanned(tmp_path / "log", data[:-missing], len(data))

    assert (found, end) == (19 - missing // (len(data) // 20), found * (len(data) // 20))
    assert reason


def test_a_batch_whose_offset_goes_back_ends_the_scan(tmp_path: Path) -> None:
    written = batches(3, 10)

    found, end, reason = scanned(tmp_path / "log", b"".join([*written, written[1]]))

    assert (found, end) == (3, sum(map(len, written)))
    assert reason == "offset 1 cannot follow 2"
