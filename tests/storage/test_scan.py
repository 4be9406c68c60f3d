"""Scanning a segment file: every sound batch is found, wherever the chunks end."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.batch_scan import ScannedBatch
from protocol.record_batch import Record, build_batch
from storage import scan as scan_module
from storage.files import LocalFileSystem
from storage.scan import scan_file


def batches(count: int, value_bytes: int) -> list[bytes]:
    return [
        bytes(
            build_batch(
                [Record(offset=at, timestamp=0, key=b"k", value=bytes(value_bytes))],
                base_offset=at,
            )
        )
        for at in range(count)
    ]


def scanned(path: Path, data: bytes) -> tuple[list[tuple[int, int]], int, str]:
    path.write_bytes(data)
    file = LocalFileSystem().open(str(path))
    found: list[tuple[int, int]] = []

    def take(batch: ScannedBatch, position: int) -> None:
        found.append((batch.base_offset, position))

    end = scan_file(file, 0, len(data), take)
    file.close()
    return found, end.position, end.reason


@pytest.mark.parametrize("chunk_bytes", [64, 100, 1000, 1500, 4096])
def test_no_sound_batch_is_lost_at_the_end_of_a_chunk(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "CHUNK_BYTES", chunk_bytes)
    written = batches(40, 70) + batches(3, 5000)

    found, end, reason = scanned(tmp_path / "log", b"".join(written))

    assert len(found) == len(written)
    assert (end, reason) == (sum(map(len, written)), "")


def test_a_file_of_one_and_a_half_chunks_is_read_to_its_end(tmp_path: Path) -> None:
    data = b"".join(batches(6000, 980))
    assert len(data) > scan_module.CHUNK_BYTES * 5 // 4

    found, end, reason = scanned(tmp_path / "log", data)

    assert len(found) == 6000
    assert (end, reason) == (len(data), "")


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 100])
def test_a_torn_last_batch_ends_the_scan_where_it_begins(cut: int, tmp_path: Path) -> None:
    whole, torn = b"".join(batches(10, 100)), batches(1, 100)[0]

    found, end, reason = scanned(tmp_path / "log", whole + torn[:cut])

    assert len(found) == 10
    assert end == len(whole)
    assert reason


def test_a_batch_that_claims_two_gigabytes_is_not_read_for(tmp_path: Path) -> None:
    whole, lying = b"".join(batches(5, 10)), bytearray(batches(1, 10)[0])
    lying[8:12] = (2**31 - 1).to_bytes(4, "big")

    found, end, reason = scanned(tmp_path / "log", whole + bytes(lying))

    assert (len(found), end) == (5, len(whole))
    assert reason
