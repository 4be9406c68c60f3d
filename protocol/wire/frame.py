"""Cuts a byte stream into Kafka frames, without copying large ones.

    frame := size: int32 | payload: byte[size]        (big-endian; size excludes itself)

    received   [ frame | frame | size, start of a large fr
                  \\_______\\_____   \\____________________
                   copied out       moved once to its own bytearray, which receives the rest of
                                    the frame

Sans-IO, with the interface of asyncio's BufferedProtocol: the caller receives into `get_buffer()`,
reports the size with `buffer_updated()`, and takes the complete frames. Memory grows with the received
bytes, not with the announced size: a large frame's own buffer doubles as it fills up, beginning with
the size of the last large frame, the beginning of a small frame takes only its own bytes, and between
frames a connection has no buffer at all. The connections of one loop may share the buffer in which
frames begin, because it is empty once the complete frames are taken.

Source: https://kafka.apache.org/protocol#protocol_common
"""

from __future__ import annotations

import struct

from protocol.wire.errors import FrameTooLarge, MalformedFrame

SIZE = struct.Struct(">i")

RECEIVE_BYTES = 64 * 1024
"""Size of the buffer in which frames begin."""
RECEIVE_AFTER_LARGE_BYTES = 8 * 1024
"""Its size after a frame larger than RECEIVE_BYTES: such frames often come in a row, and most of the
next one is then received straight into its own buffer."""
LARGE_BYTES_MIN = 16 * 1024
"""An incomplete frame of at least this size gets its own buffer."""
ROOM_BYTES_MIN = 4 * 1024
"""With less free space than this, the extra receive calls cost more than copying."""
OWN_BYTES_MIN = 16 * 1024
"""Initial size of a frame's own buffer, if less of the frame was received."""
OWN_BYTES_STEP = 256 * 1024
"""Largest step by which that buffer grows as it fills up; below this it doubles."""

_ZEROS = memoryview(bytes(OWN_BYTES_STEP))


class FrameBuffer:
    """The bytes received on one connection that were not taken as frames yet."""

    __slots__ = (
        "_end",
        "_large",
        "_large_end",
        "_large_size",
        "_received",
        "_shared",
        "_start",
        "frame_bytes_max",
    )

    def __init__(self, *, frame_bytes_max: int, shared: bytearray | None = None) -> None:
        """
        Args:
            shared: a buffer of RECEIVE_BYTES bytes into which all connections of a loop receive. After
                each `buffer_updated`, call `next_frame` until it returns None or raises, before another
                connection receives. None: a new buffer for each receive, which costs a small request
                more than a microsecond.
        """
        assert frame_bytes_max > 0
        self._shared = shared
        self.frame_bytes_max = frame_bytes_max
        """The size of the largest frame; it may change between two frames."""
        # State: _received[_start:_end] was received and not taken. A large frame, if any, follows it
        # in its own buffer, _large[:_large_end]. _large_size keeps the size of the last large frame
        # until a small frame is taken.
        self._received: bytearray | None = None
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_end = 0
        self._large_size = 0

    @property
    def buffered_bytes(self) -> int:
        """Memory held for received bytes that were not taken; 0 if there are none."""
        received = 0
        if self._received is not None and self._start < self._end:
            received = len(self._received)
        return received + (0 if self._large is None else len(self._large))

    def drop(self) -> None:
        """Drop all received bytes: the peer is gone."""
        self._received = self._large = None
        self._start = self._end = self._large_end = self._large_size = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Returns memory to receive into, never empty. Release it before the next call: while a view is
        still held, a large frame grows by a copy.

        Complete frames stay in memory until they are taken: take them all before receiving
        more, or pause the transport while they wait.
        """
        if self._large is not None and self._large_end < self._large_size:
            if self._large_end == len(self._large):
                self._large = _grown(self._large, self._large_size)
            return memoryview(self._large)[self._large_end :]
        if self._received is None and self._shared is not None:
            received = self._received = self._shared
            if self._large_size > RECEIVE_BYTES:
                return memoryview(received)[:RECEIVE_AFTER_LARGE_BYTES]
            return memoryview(received)
        return memoryview(self._with_room())[self._end :]

    def buffer_updated(self, count: int) -> None:
        """Account for `count` bytes received into the last `get_buffer()`."""
        if self._large is not None and self._large_end < self._large_size:
            self._large_end += count
        else:
            self._end += count

    def next_frame(self) -> bytearray | None:
        """Take the payload of the next complete frame. Returns None until more bytes arrive.

        The caller owns the bytearray and may keep and change it.

        Raises:
            MalformedFrame: the announced size is negative.
            FrameTooLarge: it exceeds `frame_bytes_max`; raised before the payload is buffered.
        """
        if self._large is not None:
            return self._take_large()
        received, start = self._received, self._start
        if received is None:
            return None
        if self._end - start < SIZE.size:
            self._shrink(received)
            return None
        (size,) = SIZE.unpack_from(received, start)
        if size < 0:
            raise MalformedFrame(f"frame size {size}")
        if size > self.frame_bytes_max:
            raise FrameTooLarge(size, self.frame_bytes_max)
        start += SIZE.size
        if start + size <= self._end:
            self._large_size = 0
            frame = received[start : start + size]
            self._drop_until(start + size)
            return frame
        if size >= LARGE_BYTES_MIN:
            self._begin_large(size, memoryview(received)[start : self._end])
        else:
            self._shrink(received)
        return None

    def _take_large(self) -> bytearray | None:
        if self._large_end < self._large_size:
            return None
        frame, self._large = self._large, None
        return frame

    def _begin_large(self, size: int, begun: memoryview) -> None:
        """Move the beginning of a frame, the last received bytes, to its own buffer."""
        # A peer that has just completed a large frame gets room for as much again: growing step by
        # step would cost every frame of a steady producer several receive calls more.
        proven = min(self._large_size, OWN_BYTES_STEP)
        self._large_size, self._large_end = size, len(begun)
        self._large = bytearray(min(size, max(OWN_BYTES_MIN, 2 * len(begun), proven)))
        self._large[: len(begun)] = begun
        self._drop_until(self._end)

    def _shrink(self, received: bytearray) -> None:
        """Keep the beginning of a small frame without the free space after it.

        Thousands of connections may stop in the middle of a frame; the next receive gets a buffer of
        the usual size again.
        """
        self._received = received[self._start : self._end] or None
        self._start, self._end = 0, self._end - self._start

    def _drop_until(self, position: int) -> None:
        self._start = position
        if position == self._end:
            self._received = None
            self._start = self._end = 0

    def _with_room(self) -> bytearray:
        """Returns the receive buffer, with free space after `_end`."""
        received = self._received
        if received is None:
            is_after_large = self._large_size > RECEIVE_BYTES
            received = bytearray(RECEIVE_AFTER_LARGE_BYTES if is_after_large else RECEIVE_BYTES)
        elif len(received) - self._end < ROOM_BYTES_MIN:
            kept = self._end - self._start
            fresh = bytearray(max(RECEIVE_BYTES, 2 * kept))
            fresh[:kept] = memoryview(received)[self._start :]
            received, self._start, self._end = fresh, 0, kept
        self._received = received
        return received


def _grown(large: bytearray, size_max: int) -> bytearray:
    """Returns the memory of a large frame at twice its size, in place if possible."""
    # (A fresh `bytes(n)` would cost more than all the rest, because its pages are new each time.)
    more = _ZEROS[: min(size_max - len(large), len(large))]
    try:
        large += more
    except BufferError:
        # The loop watch looks at the frames of a call that takes long, and may keep the view of the last
        # receive alive for a moment.
        large = large + more
    return large
