"""Reading a segment continues behind an unsound batch and reports its position."""

from __future__ import annotations

import pytest

from storage.batches import chunks as batch_chunks
from storage.batches.chunks import Chunk, Unsound, read_chunks
from storage.files.files import Buffer
from tests.harness.log_builder import batch_of
from tests.harness.memory_fs import MemoryFile, MemoryFileSystem


def file_of(*batches: Buffer) -> MemoryFile:
    fs = MemoryFileSystem()
    file = fs.open("segment", create=True)
    file.append(batches)
    return file


def batches(count: int, value_bytes: int = 20) -> list[bytearray]:
    return [batch_of([(b"k", bytes(value_bytes))], base_offset=offset) for offset in range(count)]


def offsets(file: MemoryFile) -> list[int | str]:
    """Returns the base offsets of sound batches, and the positions of unsound ones."""
    found: list[int | str] = []
    for part in read_chunks(file, 0, file.size):
        if isinstance(part, Unsound):
            found.append(f"{part.position}-{part.end_position}{' last' if part.is_last else ''}")
        else:
            found += [batch.base_offset for batch in part.batches]
    return found


def test_sound_batches_are_read_whole_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_chunks, "CHUNK_BYTES", 200)
    written = [*batches(5), batch_of([(b"k", bytes(900))], base_offset=5), *batches(8)[6:]]
    file = file_of(*written)

    assert offsets(file) == list(range(8))
    for part in read_chunks(file, 0, file.size):
        assert isinstance(part, Chunk)
        for batch in part.batches:
            data = part.data[batch.position : batch.position + batch.size_bytes]
            assert data == written[batch.base_offset]


def test_reading_goes_on_behind_a_batch_whose_crc_differs() -> None:
    written = batches(4)
    written[1][-1] ^= 1
    size = len(written[0])

    assert offsets(file_of(*written)) == [0, f"{size}-{2 * size}", 2, 3]


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_a_cut_off_batch_is_the_last(lost: int) -> None:
    written = batches(3)
    written[2] = written[2][:-lost]
    size = len(written[0])

    assert offsets(file_of(*written)) == [0, 1, f"{2 * size}-{3 * size - lost} last"]


def test_a_wrong_length_leads_nowhere() -> None:
    written = batches(3)
    written[1][8:12] = (1 << 30).to_bytes(4)
    size = len(written[0])

    assert offsets(file_of(*written)) == [0, f"{size}-{3 * size} last"]


def test_what_is_wrong_is_said_with_its_place_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_chunks, "CHUNK_BYTES", 100)
    written = batches(4)
    written[3][16] = 1
    file = file_of(*written)

    (unsound,) = [part for part in read_chunks(file, 0, file.size) if isinstance(part, Unsound)]

    assert unsound.position == 3 * len(written[0])
    assert f"position {unsound.position} has message format 1" in unsound.reason


def test_a_file_that_is_cut_meanwhile_ends_where_it_ends() -> None:
    written = batches(2)
    file = file_of(*written)

    assert [isinstance(part, Chunk) for part in read_chunks(file, 0, file.size + 500)] == [True]
