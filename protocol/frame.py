"""Cut a byte stream into Kafka frames, without copying large ones.

    frame := size: int32 | payload: byte[size]        (big-endian; size excludes itself)

    received   [ frame | frame | size, start of a large fr
                  \\_______\\_____   \\____________________
                   copied out       moved once to a bytearray of its own, in which the rest of the
                                    frame is received

Sans-IO, in the shape of asyncio's BufferedProtocol: the caller receives into `get_buffer()`, says
how much with `buffer_updated()`, and takes the frames that are complete. Memory follows what was
received, not what was announced: a frame's own memory doubles as it fills up, the beginning of a
small frame is kept in just its bytes, and between frames a connection has no buffer at all.

Source: https://kafka.apache.org/protocol#protocol_common
"""

from __future__ import annotations

import struct

from protocol.errors import FrameTooLarge, MalformedFrame

SIZE = struct.Struct(">i")

RECEIVE_BYTES = 64 * 1024
"""Size of the buffer that frames start in."""
RECEIVE_AFTER_LARGE_BYTES = 8 * 1024
"""Its size after a frame larger than RECEIVE_BYTES: such frames come one after the other, and most
of the next one is then received straight into its own memory."""
LARGE_BYTES_MIN = 16 * 1024
"""An incomplete frame of at least this size gets memory of its own."""
ROOM_BYTES_MIN = 4 * 1024
"""What is received with less room than this costs more in calls than in copies."""
OWN_BYTES_MIN = 16 * 1024
"""What a frame's own memory begins with, if less was received of it."""
OWN_BYTES_STEP = 256 * 1024
"""How much it grows at a time, at most, as it fills up; up to there it doubles."""

_ZEROS = memoryview(bytes(OWN_BYTES_STEP))


class FrameBuffer:
    """Bytes received on one connection and not yet taken as frames."""

    __slots__ = (
        "_end",
        "_frame_bytes_max",
        "_large",
        "_large_end",
        "_large_size",
        "_received",
        "_start",
    )

    def __init__(self, *, frame_bytes_max: int) -> None:
        assert frame_bytes_max > 0
        # Constant after construction
        self._frame_bytes_max = frame_bytes_max
        # State: received and not taken is _received[_start:_end], behind which a large frame,
        # if there is one, stands alone in _large[:_large_end]. _large_size is the last one's until
        # a small frame was taken.
        self._received: bytearray | None = None
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_end = 0
        self._large_size = 0

    @property
    def buffered_bytes(self) -> int:
        """The memory that is held for what was received and not taken; 0 if nothing was."""
        received = 0
        if self._received is not None and self._start < self._end:
            received = len(self._received)
        return received + (0 if self._large is None else len(self._large))

    def drop(self) -> None:
        """Let go of what was received: the peer is gone."""
        self._received = self._large = None
        self._start = self._end = self._large_end = self._large_size = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Memory to receive into, never empty. Let go of it before asking for the next.

        Frames that are complete and not taken stay in memory: take them all before receiving
        more, or pause the transport while they wait.
        """
        if self._large is not None and self._large_end < self._large_size:
            if self._large_end == len(self._large):
                # No view of it exists here, so this can grow in place. (A fresh `bytes(n)` to
                # append would cost more than all the rest: its pages are new ones each time.)
                more = min(self._large_size - len(self._large), len(self._large))
                self._large += _ZEROS[:more]
            return memoryview(self._large)[self._large_end :]
        return memoryview(self._with_room())[self._end :]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were received into the last `get_buffer()`."""
        if self._large is not None and self._large_end < self._large_size:
            self._large_end += count
        else:
            self._end += count

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Receive bytes that are in memory already."""
        rest = memoryview(data)
        while rest:
            with self.get_buffer() as buffer:
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    def next_frame(self) -> bytearray | None:
        """Take the payload of the next complete frame; None until more bytes arrive.

        The bytearray is the caller's alone, to keep and to change.

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
        if size > self._frame_bytes_max:
            raise FrameTooLarge(size, self._frame_bytes_max)
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
        """Move the beginning of a frame, the last bytes received, to memory of its own."""
        self._large_size, self._large_end = size, len(begun)
        self._large = bytearray(min(size, max(OWN_BYTES_MIN, 2 * len(begun))))
        self._large[: len(begun)] = begun
        self._drop_until(self._end)

    def _shrink(self, received: bytearray) -> None:
        """Keep the beginning of a small frame without the room behind it.

        Thousands of connections may stop in the middle of a frame; what is received next finds a
        buffer of the usual size again.
        """
        self._received = received[self._start : self._end] or None
        self._start, self._end = 0, self._end - self._start

    def _drop_until(self, position: int) -> None:
        self._start = position
        if position == self._end:
            self._received = None
            self._start = self._end = 0

    def _with_room(self) -> bytearray:
        """The receive buffer, with room behind `_end`."""
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
