from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_header import read_header, stamp
from protocol.records.control_record import ControlType
from protocol.records.record_batch import build_empty_batch
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar, DiskError, MissingFile, NoSpace
from storage.files.files import FileSystem
from storage.formats.key_sidecar import KeySidecar
from storage.formats.manifest import SegmentRow
from storage.segment.key_sidecar_writer import KeySidecarWriter
from tests.harness.key_blocks import blocks_of, sidecar_of, totals_of
from tests.harness.log_builder import batch_of, marker_of
from tests.harness.memory_fs import MemoryFileSystem

PATH = "/log/00000000000000000100.v3.keys"
HASH_KEY = bytes(range(16))
BASE, VERSION = 100, 3


def segment(*batches: bytearray, base_offset: int = BASE) -> bytes:
    """Returns the batches back to back, with offsets from the segment's base on."""
    offset = base_offset
    for batch in batches:
        stamp(batch, base_offset=offset, leader_epoch=0)
        offset = read_header(batch).next_offset
    return b"".join(batches)


DATA = segment(
    batch_of([(b"a", b"1"), (None, b"2"), (b"b", None)]),
    batch_of([(b"c", b"3")], producer_id=7, producer_epoch=1, base_sequence=0),
    batch_of([(b"d", b"4")], producer_id=8, producer_epoch=0, is_transactional=True),
    marker_of(ControlType.COMMIT, 8),
    build_empty_batch(read_header(batch_of([(b"e", b"5")], producer_id=9, producer_epoch=0))),
)


def row_of(data: bytes, base_offset: int = BASE, version: int = VERSION) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(base_offset), file_version=version, size=len(data), created_ms=0
    )


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/log")
    return fs


def new_writer(fs: FileSystem) -> KeySidecarWriter:
    return KeySidecarWriter(fs, PATH, base_offset=BASE, file_version=VERSION, hash_key=HASH_KEY)


def write(fs: FileSystem, data: bytes, *, batches_a_block: int = 2) -> bytes:
    """Write the sidecar of a segment that holds `data`. Returns its bytes."""
    writer = new_writer(fs)
    for block in blocks_of(
        data, base_offset=BASE, hash_key=HASH_KEY, batches_a_block=batches_a_block
    ):
        writer.append(block)
    writer.finish(len(data), totals_of(data, batches_a_block=batches_a_block))
    return fs.read_bytes(PATH)


def opened(fs: FileSystem, data: bytes) -> KeySidecar:
    return KeySidecar.open(fs, PATH, row_of(data), HASH_KEY)


def read(fs: FileSystem, data: bytes) -> list[bytes]:
    return [bytes(block.data) for block in opened(fs, data).blocks()]


batches = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.one_of(st.none(), st.binary(max_size=4)),
                st.one_of(st.none(), st.binary(max_size=20)),
            ),
            min_size=1,
            max_size=4,
        ).map(batch_of),
        st.sampled_from((ControlType.COMMIT, ControlType.ABORT)).map(
            lambda kind: marker_of(kind, 5)
        ),
    ),
    max_size=6,
)


@given(batches, st.integers(1, 4))
def test_what_is_written_is_what_the_format_says_and_is_read_again(
    drawn: Sequence[bytearray], batches_a_block: int
) -> None:
    data, fs = segment(*drawn), disk()
    written = write(fs, data, batches_a_block=batches_a_block)
    assert written == sidecar_of(
        data,
        base_offset=BASE,
        version=VERSION,
        hash_key=HASH_KEY,
        batches_a_block=batches_a_block,
    )
    sidecar = opened(fs, data)
    assert sidecar.totals == totals_of(data, batches_a_block=batches_a_block)
    assert sidecar.size == len(written)
    position = entries = 0
    for block, expected in zip(
        sidecar.blocks(),
        blocks_of(data, base_offset=BASE, hash_key=HASH_KEY, batches_a_block=batches_a_block),
        strict=True,
    ):
        assert bytes(block.data) == expected
        assert (block.position, block.first_entry) == (position, entries)
        rows = block.special_count + block.entry_count
        assert len(block.data) == 16 + 24 * rows + 8
        position += block.data_bytes
        entries += block.entry_count
    assert (position, entries) == (len(data), sidecar.totals.entries)


def test_blocks_from_a_position_on_are_the_last_of_all_blocks() -> None:
    fs = disk()
    write(fs, DATA, batches_a_block=1)
    sidecar = opened(fs, DATA)
    blocks = list(sidecar.blocks())
    for number, block in enumerate(blocks):
        for start in (block.position, block.position + block.data_bytes - 1):
            assert list(sidecar.blocks(start)) == blocks[number:]
    assert list(sidecar.blocks(len(DATA))) == []


def test_each_flipped_byte_is_noticed() -> None:
    fs = disk()
    written = write(fs, DATA)
    for position, byte in enumerate(written):
        fs.overwrite(PATH, position, bytes([byte ^ 0x10]))
        with pytest.raises(DamagedSidecar):
            read(fs, DATA)
        fs.overwrite(PATH, position, bytes([byte]))
    assert read(fs, DATA)


def test_a_file_that_ends_early_is_noticed_when_it_is_opened() -> None:
    fs = disk()
    written = write(fs, DATA)
    for size in reversed(range(len(written))):
        fs.open(PATH).truncate(size)
        with pytest.raises(DamagedSidecar):
            opened(fs, DATA)


def test_a_file_with_bytes_behind_its_trailer_is_damaged() -> None:
    fs = disk()
    write(fs, DATA)
    fs.open(PATH).append((b"\0" * 8,))
    with pytest.raises(DamagedSidecar):
        opened(fs, DATA)


def test_a_lost_sector_is_noticed_before_its_block_is_given_out() -> None:
    fs = disk()
    data = segment(*(batch_of([(b"%d" % number, b"v")]) for number in range(200)))
    written = write(fs, data, batches_a_block=10)
    for start in range(0, len(written), 512):
        lost = written[start : start + 512]
        fs.overwrite(PATH, start, bytes(len(lost)))
        with pytest.raises(DamagedSidecar):
            read(fs, data)
        fs.overwrite(PATH, start, lost)
    assert len(read(fs, data)) == 20


def test_blocks_that_are_swapped_for_sound_ones_of_another_size_are_noticed() -> None:
    fs = disk()
    first, second = segment(batch_of([(b"a", b"1")])), segment(batch_of([(b"a", b"12")]))
    write(fs, first)
    (block,) = blocks_of(second, base_offset=BASE, hash_key=HASH_KEY)
    fs.overwrite(PATH, 48, block)
    with pytest.raises(DamagedSidecar, match="its blocks hold"):
        read(fs, first)


@pytest.mark.parametrize(
    ("row", "hash_key"),
    [
        pytest.param(row_of(DATA, base_offset=BASE + 1), HASH_KEY, id="another_base_offset"),
        pytest.param(row_of(DATA, version=VERSION + 1), HASH_KEY, id="another_file"),
        pytest.param(row_of(DATA[:-1]), HASH_KEY, id="another_size"),
        pytest.param(row_of(DATA), bytes(16), id="another_hash_key"),
    ],
)
def test_a_sidecar_speaks_for_one_file_and_one_hash_key(row: SegmentRow, hash_key: bytes) -> None:
    fs = disk()
    write(fs, DATA)
    with pytest.raises(DamagedSidecar):
        KeySidecar.open(fs, PATH, row, hash_key)


def test_the_hash_key_is_not_in_the_file() -> None:
    assert HASH_KEY not in write(disk(), DATA)
    assert HASH_KEY[:8] not in write(disk(), DATA)


def test_a_sidecar_that_is_not_there_is_missing() -> None:
    with pytest.raises(MissingFile):
        opened(disk(), DATA)


def test_a_sidecar_that_goes_while_it_is_known_is_damaged() -> None:
    fs = disk()
    write(fs, DATA)
    sidecar = opened(fs, DATA)
    fs.unlink(PATH)
    with pytest.raises(DamagedSidecar):
        next(sidecar.blocks())


def test_a_sidecar_in_whose_place_another_is_put_while_it_is_known_is_damaged() -> None:
    """Its blocks are sound and have the same size: an operator has restored a backup."""
    fs = disk()
    content = write(fs, DATA)
    sidecar = opened(fs, DATA)
    other = sidecar_of(DATA, base_offset=BASE, version=VERSION + 1, hash_key=HASH_KEY)
    assert len(other) == len(content)
    fs.write_bytes(PATH, other)

    with pytest.raises(DamagedSidecar, match="another sidecar has replaced it"):
        next(sidecar.blocks())


def test_what_the_disk_cannot_read_is_damaged() -> None:
    fs = disk()
    write(fs, DATA)
    sidecar = opened(fs, DATA)
    fs.faults.fail("read", errno.EIO, path=PATH)
    with pytest.raises(DamagedSidecar):
        next(sidecar.blocks())


def test_a_want_of_descriptors_is_not_damage() -> None:
    fs = disk()
    write(fs, DATA)
    sidecar = opened(fs, DATA)
    fs.faults.fail("open", errno.EMFILE, path=PATH)
    with pytest.raises(NoSpace):
        next(sidecar.blocks())


def test_a_sidecar_that_is_not_finished_is_damaged() -> None:
    fs = disk()
    writer = new_writer(fs)
    for block in blocks_of(DATA, base_offset=BASE, hash_key=HASH_KEY):
        with pytest.raises(DamagedSidecar):
            opened(fs, DATA)
        writer.append(block)
    with pytest.raises(DamagedSidecar):
        opened(fs, DATA)


def test_a_discarded_sidecar_leaves_no_file() -> None:
    fs = disk()
    writer = new_writer(fs)
    writer.discard()
    writer.discard()
    assert fs.list("/log") == []


def test_a_sidecar_is_begun_over_what_a_crash_left_of_one() -> None:
    fs = disk()
    new_writer(fs).append(blocks_of(DATA, base_offset=BASE, hash_key=HASH_KEY)[0])
    write(fs, DATA)
    assert read(fs, DATA)


def test_totals_that_the_blocks_do_not_have_are_refused() -> None:
    fs = disk()
    writer = new_writer(fs)
    with pytest.raises(ValueError, match="its blocks hold"):
        writer.finish(len(DATA), totals_of(DATA))
    assert fs.list("/log") == []


def write_in_another_place(fs: FileSystem, ended: list[bool]) -> None:
    """Write the sidecar under a temporary name until it is finished."""
    writer = KeySidecarWriter(
        fs,
        f"{PATH}.cleaned",
        base_offset=BASE,
        file_version=VERSION,
        hash_key=HASH_KEY,
        placed_as=PATH,
        on_end=lambda: ended.append(True),
    )
    for block in blocks_of(DATA, base_offset=BASE, hash_key=HASH_KEY):
        assert not fs.exists(PATH)
        writer.append(block)
    writer.finish(len(DATA), totals_of(DATA))


def test_a_sidecar_has_its_name_once_it_is_whole() -> None:
    fs, ended = disk(), list[bool]()
    write_in_another_place(fs, ended)
    assert read(fs, DATA)
    assert ended == [True]


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, NoSpace), (errno.EIO, DiskError)], ids=["full", "broken"]
)
def test_whatever_fails_while_a_sidecar_is_written_leaves_no_file_of_it(
    number: int, error: type[DiskError]
) -> None:
    # Open, header, three blocks, trailer, rename.
    for count in range(1, 8):
        fs, ended = disk(), list[bool]()
        fs.faults.fail_nth(count, number)
        with pytest.raises(error):
            write_in_another_place(fs, ended)
        assert fs.list("/log") == []
        assert ended == [True] * (count > 2)
