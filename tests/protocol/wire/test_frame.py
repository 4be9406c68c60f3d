"""Framing: size-prefixed payloads, cut at any byte boundary, large ones without a copy."""

from __future__ import annotations

import asyncio
import random
import socket
import tracemalloc
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.errors import FrameTooLarge, MalformedFrame
from protocol.wire.frame import (
    LARGE_BYTES_MIN,
    OWN_BYTES_MIN,
    OWN_BYTES_STEP,
    RECEIVE_BYTES,
    SIZE,
    FrameBuffer,
)

MIB = 1 << 20


def framed(payload: bytes) -> bytes:
    return SIZE.pack(len(payload)) + payload


def receive(buffer: FrameBuffer, data: bytes) -> None:
    """Receive bytes as a socket would deliver them: as many at a time as the buffer has room for."""
    rest = memoryview(data)
    while rest:
        with buffer.get_buffer() as room:
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
        buffer.buffer_updated(count)
        rest = rest[count:]


def take_all(buffer: FrameBuffer) -> list[bytearray]:
    return list(iter(buffer.next_frame, None))


def test_frame_is_withheld_until_its_last_byte() -> None:
    buffer = FrameBuffer(frame_bytes_max=16)
    receive(buffer, framed(b"abc")[:-1])
    assert buffer.next_frame() is None
    receive(buffer, b"c")
    assert take_all(buffer) == [b"abc"]


def test_empty_frame_is_a_frame() -> None:
    buffer = FrameBuffer(frame_bytes_max=16)
    receive(buffer, framed(b"") + framed(b"a"))
    assert take_all(buffer) == [b"", b"a"]


@given(st.lists(st.binary(max_size=32)), st.data())
def test_chunk_boundaries_do_not_change_the_frames(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(framed, payloads))
    buffer, taken, position = FrameBuffer(frame_bytes_max=32), [], 0
    while position < len(stream):
        step = data.draw(st.integers(1, len(stream) - position))
        receive(buffer, stream[position : position + step])
        taken += take_all(buffer)
        position += step
    assert taken == payloads


@pytest.mark.parametrize("seed", range(8))
def test_frames_of_all_sizes_come_out_as_they_went_in(seed: int) -> None:
    """Sizes around every border, received as a socket gives them: as much as there is room for."""
    rng = random.Random(seed)
    borders = [LARGE_BYTES_MIN, RECEIVE_BYTES, OWN_BYTES_STEP, 2 * OWN_BYTES_STEP]
    sizes = [border + rng.randint(-5, 5) for border in borders] + [0, 1, 100, 3000] * 20
    rng.shuffle(sizes)
    payloads = [rng.randbytes(size) for size in sizes]
    stream = memoryview(b"".join(map(framed, payloads)))

    buffer, taken = FrameBuffer(frame_bytes_max=MIB), []
    while stream:
        with buffer.get_buffer(-1) as room:
            count = min(len(room), len(stream), rng.choice([1, 7, 5000, 100_000, MIB]))
            room[:count] = stream[:count]
        buffer.buffer_updated(count)
        stream = stream[count:]
        taken += take_all(buffer)

    assert taken == payloads


@given(st.integers(0, 1 << 32))
def test_connections_that_share_the_buffer_in_which_frames_begin_do_not_mix_them(seed: int) -> None:
    rng, shared = random.Random(seed), bytearray(RECEIVE_BYTES)
    sizes = (0, 1, 100, 3000, LARGE_BYTES_MIN, RECEIVE_BYTES + 9, 2 * OWN_BYTES_STEP)
    sent = [[rng.randbytes(rng.choice(sizes)) for _ in range(9)] for _ in range(3)]
    streams = [memoryview(b"".join(map(framed, payloads))) for payloads in sent]
    buffers = [FrameBuffer(frame_bytes_max=MIB, shared=shared) for _ in sent]
    taken: list[list[bytearray]] = [[] for _ in sent]
    while any(streams):
        which = rng.choice([number for number, stream in enumerate(streams) if stream])
        with buffers[which].get_buffer(-1) as room:
            count = min(len(room), len(streams[which]), rng.choice([1, 7, 5000, 100_000, MIB]))
            room[:count] = streams[which][:count]
        if rng.random() < 0.2:
            continue  # The socket had nothing to read after all.
        buffers[which].buffer_updated(count)
        streams[which] = streams[which][count:]
        taken[which] += take_all(buffers[which])

    assert taken == sent
    assert [buffer.buffered_bytes for buffer in buffers] == [0, 0, 0]


def test_frames_may_wait_while_more_arrives() -> None:
    payloads = [bytes([index % 251]) * 5000 for index in range(60)]
    buffer = FrameBuffer(frame_bytes_max=MIB)
    receive(buffer, b"".join(map(framed, payloads)))
    assert take_all(buffer) == payloads


def test_large_frame_is_received_in_the_memory_it_is_taken_in() -> None:
    payload = random.Random(1).randbytes(3 * MIB)
    buffer = FrameBuffer(frame_bytes_max=4 * MIB)
    receive(buffer, framed(payload)[:-1])
    assert buffer.next_frame() is None
    receive(buffer, payload[-1:])

    tracemalloc.start()
    frame = buffer.next_frame()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert frame is not None
    assert bytes(frame) == payload
    assert peak < 1024


def test_a_large_frame_grows_while_someone_still_holds_the_last_view() -> None:
    """As the loop watch does for a moment, by the frames of a call that takes long."""
    data = framed(random.Random(1).randbytes(MIB))
    buffer, held, rest = FrameBuffer(frame_bytes_max=MIB), list[memoryview](), memoryview(data)
    frames = list[bytearray]()
    while rest:
        room = buffer.get_buffer()
        held.append(room)
        count = min(len(room), len(rest), 10_000)
        room[:count] = rest[:count]
        buffer.buffer_updated(count)
        rest = rest[count:]
        frames = take_all(buffer)

    assert frames == [data[SIZE.size :]]


def test_frames_are_the_callers_to_change() -> None:
    buffer = FrameBuffer(frame_bytes_max=MIB)
    receive(buffer, framed(b"abc") + framed(b"def"))
    frame = buffer.next_frame()
    assert frame is not None
    frame[0:1] = b"X"
    assert frame == b"Xbc"
    assert take_all(buffer) == [b"def"]


def test_buffer_does_not_run_into_the_frame_behind_a_large_one() -> None:
    payload = bytes(OWN_BYTES_MIN)
    buffer = FrameBuffer(frame_bytes_max=MIB)
    receive(buffer, framed(payload)[:100])
    assert buffer.next_frame() is None
    with buffer.get_buffer(-1) as room:
        assert len(room) == len(payload) - 96


def test_memory_follows_what_was_received_not_what_was_announced() -> None:
    tracemalloc.start()
    buffer = FrameBuffer(frame_bytes_max=100 * MIB)
    receive(buffer, SIZE.pack(100 * MIB) + b"x")
    assert buffer.next_frame() is None
    buffer.get_buffer(-1).release()
    announced, _ = tracemalloc.get_traced_memory()
    receive(buffer, bytes(3 * MIB))
    received, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert announced < 2 * OWN_BYTES_STEP
    assert received < 4 * MIB


@pytest.mark.parametrize("announced", [100, LARGE_BYTES_MIN, MIB, 100 * MIB])
@pytest.mark.parametrize("received", [1, 100, 10_000, 200_000])
def test_a_frame_that_has_begun_holds_little_more_than_what_was_received(
    announced: int, received: int
) -> None:
    buffer = FrameBuffer(frame_bytes_max=100 * MIB)
    stream = SIZE.pack(announced) + bytes(min(received, announced - 1))
    receive(buffer, stream)
    assert buffer.next_frame() is None

    assert buffer.buffered_bytes <= max(2 * len(stream), OWN_BYTES_MIN)

    buffer.drop()
    assert buffer.buffered_bytes == 0


def received_at_once(buffer: FrameBuffer, stream: bytes) -> int:
    """Receive a whole frame that waits in the socket. Returns the number of receive calls."""
    calls, rest = 0, memoryview(stream)
    while rest:
        with buffer.get_buffer() as room:
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
        buffer.buffer_updated(count)
        rest, calls = rest[count:], calls + 1
        if rest:
            assert buffer.next_frame() is None
    assert buffer.next_frame() is not None
    return calls


def test_large_frames_in_a_row_are_received_in_two_calls_each() -> None:
    """Each call more costs a steady producer a turn of the loop for every request."""
    buffer = FrameBuffer(frame_bytes_max=MIB)
    frame = framed(bytes(100 * 1024))
    assert [received_at_once(buffer, frame) for _ in range(4)] == [2, 2, 2, 2]


def test_a_frame_begun_after_a_large_one_holds_at_most_the_size_of_that() -> None:
    buffer = FrameBuffer(frame_bytes_max=64 * MIB)
    for last in (100 * 1024, 2 * MIB):
        received_at_once(buffer, framed(bytes(last)))
        received_at_once(buffer, framed(bytes(100)))
        received_at_once(buffer, framed(bytes(last)))
        receive(buffer, SIZE.pack(32 * MIB) + bytes(100))
        assert buffer.next_frame() is None
        assert buffer.buffered_bytes == min(last, OWN_BYTES_STEP)
        buffer.drop()


def test_memory_is_given_back_after_a_frame() -> None:
    tracemalloc.start()
    buffer = FrameBuffer(frame_bytes_max=100 * MIB)
    receive(buffer, framed(bytes(8 * MIB))[: 4 * MIB])
    assert buffer.next_frame() is None
    receive(buffer, bytes(4 * MIB + 4))
    assert buffer.next_frame() is not None
    receive(buffer, framed(b"abc"))
    assert take_all(buffer) == [b"abc"]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 16 * 1024


def test_oversized_frame_is_refused_before_its_payload_arrives() -> None:
    buffer = FrameBuffer(frame_bytes_max=4)
    receive(buffer, SIZE.pack(5))
    with pytest.raises(FrameTooLarge, match="5 bytes, at most 4") as raised:
        buffer.next_frame()
    assert (raised.value.size, raised.value.size_max) == (5, 4)


def test_negative_size_is_malformed() -> None:
    buffer = FrameBuffer(frame_bytes_max=4)
    receive(buffer, SIZE.pack(-1))
    with pytest.raises(MalformedFrame):
        buffer.next_frame()


class Receiver(asyncio.BufferedProtocol):
    """Takes frames off a real transport, as the server's connection does."""

    def __init__(self) -> None:
        self.buffer = FrameBuffer(frame_bytes_max=16 * MIB)
        self.frames: list[bytearray] = []
        self.lost = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.buffer.buffer_updated(nbytes)
        self.frames += take_all(self.buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_event_loops_let_go_of_the_buffer_before_they_ask_for_the_next(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A frame's memory grows in place, which only works while nobody else holds a view of it."""
    rng = random.Random(2)
    payloads = [rng.randbytes(size) for size in (10, 5 * MIB, 0, 70_000, 3 * MIB, 100)]

    async def receive() -> list[bytearray]:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, receiver = await loop.create_connection(Receiver, sock=ours)
        await loop.sock_sendall(theirs, b"".join(map(framed, payloads)))
        theirs.close()
        assert await receiver.lost is None
        transport.close()
        return receiver.frames

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(receive()) == payloads
