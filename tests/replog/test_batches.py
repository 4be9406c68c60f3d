"""Frames travel as record batches and come back as they were; other bytes are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_header import ATTRIBUTES_AT, HEADER_BYTES, read_header, seal, stamp
from protocol.records.record import Record
from protocol.records.record_batch import Codec, build_batch
from protocol.wire.errors import CorruptBatch, ProtocolError
from protocol.wire.numbers import Epoch, Offset
from replog.batches import decode_batches, encode_batch
from replog.entry import Frame, Kind

CONTENTS = st.lists(
    st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), min_size=1, max_size=6
).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[Frame]:
    """A stretch of a log."""
    index, term = draw(st.integers(1, 1 << 62)), draw(st.integers(1, 1 << 30))
    frames = []
    for contents in draw(st.lists(CONTENTS, max_size=5)):
        term += draw(st.integers(0, 2))
        frames.append(Frame(index, term, contents))
        index = frames[-1].end
    return frames


def batches(*frames: Frame) -> bytearray:
    return bytearray().join(map(encode_batch, frames))


@given(logs())
def test_frames_come_back_as_they_were(frames: list[Frame]) -> None:
    assert decode_batches(batches(*frames)) == frames


@given(logs(), st.data())
def test_changed_or_cut_bytes_are_refused_or_are_another_sound_log(
    frames: list[Frame], data: st.DataObject
) -> None:
    changed = batches(*frames)
    if not changed:
        return
    at = data.draw(st.integers(0, len(changed) - 1))
    if data.draw(st.booleans()):
        changed[at] ^= data.draw(st.integers(1, 255))
    else:
        del changed[at:]
    try:
        found = decode_batches(changed)
    except ProtocolError:
        return
    # Offset and epoch of a batch are outside of its checksum.
    assert batches(*found) == changed


def test_a_frame_is_one_batch_whose_offset_and_epoch_are_its_index_and_term() -> None:
    frame = Frame(7, 3, ((Kind.COMMAND, b"a"), (Kind.COMMAND, b"b")))

    header = read_header(encode_batch(frame))

    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 8, 3)
    assert (header.record_count, header.is_control) == (2, False)


def test_other_kinds_are_control_records_with_types_from_100_on() -> None:
    batch = encode_batch(Frame(1, 1, ((Kind.ABANDONED, b"x"),)))

    assert read_header(batch).is_control
    assert bytes.fromhex("0000 0069") in batch[HEADER_BYTES:]


def with_attributes(bits: int) -> bytearray:
    batch = encode_batch(Frame(1, 1, ((Kind.COMMAND, b"x"),)))
    batch[ATTRIBUTES_AT + 1] = bits
    seal(batch)
    return batch


def stamped(offset: int, epoch: int) -> bytearray:
    batch = encode_batch(Frame(1, 1, ((Kind.COMMAND, b"x"),)))
    stamp(batch, base_offset=Offset(offset), leader_epoch=Epoch(epoch))
    return batch


def record(**fields: object) -> Record:
    return Record(**{"offset": 1, "timestamp": -1, "key": None, "value": b"x"} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: with_attributes(0x10), id="transactional"),
        pytest.param(lambda: build_batch([record()], base_offset=1, codec=Codec.GZIP), id="gzip"),
        pytest.param(lambda: build_batch([record()], base_offset=1, last_offset=2), id="gap"),
        pytest.param(lambda: build_batch([record(key=b"k")], base_offset=1), id="key"),
        pytest.param(lambda: build_batch([record(value=None)], base_offset=1), id="no_value"),
        pytest.param(lambda: build_batch([record(headers=(("h", b""),))]), id="header"),
        pytest.param(
            lambda: build_batch([record(key=b"\0\0\0\1")], base_offset=1, is_control=True),
            id="marker",
        ),
        pytest.param(lambda: stamped(-1, 1), id="negative_offset"),
        pytest.param(lambda: stamped(1, -1), id="negative_epoch"),
        pytest.param(lambda: stamped(1, 1) + stamped(3, 1), id="offset_missing"),
        pytest.param(lambda: stamped(1, 2) + stamped(2, 1), id="epoch_goes_back"),
        pytest.param(lambda: bytearray(b"x" * HEADER_BYTES), id="no_batch"),
        pytest.param(lambda: bytearray(b"x"), id="cut"),
    ],
)
def test_bytes_that_are_no_frames_are_refused(made: Callable[[], bytearray]) -> None:
    with pytest.raises(ProtocolError):
        decode_batches(made())


def test_the_error_says_what_is_wrong() -> None:
    with pytest.raises(CorruptBatch, match="entries from 3 in term 1 come after 2 in term 1"):
        decode_batches(stamped(1, 1) + stamped(3, 1))
