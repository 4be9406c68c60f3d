"""A socket with just enough of the protocol to send what no real client would.

Frames are packed by hand, so that requests and answers do not pass through the broker's codec. It only
uses versions without tagged fields: Produce v7, Fetch v4, ListOffsets v1.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Self

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
LATEST, EARLIEST = -1, -2
BATCH_ATTRIBUTES = 21
BATCH_OVERHEAD = 12


class ConnectionEnded(Exception):
    """The broker closed the connection while an answer was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition's answer in a Fetch v4."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    records: bytes


class RawConnection:
    """One connection; requests are answered in order, so each call reads its own answer."""

    __slots__ = ("_correlation_id", "socket")

    def __init__(self, port: int, *, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send with a header of version 1. Returns the body of the answer, after its correlation id."""
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, version, self._correlation_id) + string("raw")
        self.send(frame(header + body))
        answer = self.receive()
        assert struct.unpack_from(">i", answer) == (self._correlation_id,)
        return answer[4:]

    def receive(self) -> bytes:
        """Returns the next frame.

        Raises:
            ConnectionEnded: the broker closed the connection.
        """
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def ended(self) -> bool:
        """Returns whether the broker closed the connection, within the timeout, without an answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise ConnectionEnded from error
            if not part:
                raise ConnectionEnded
            data += part
        return bytes(data)

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, version: int = 7
    ) -> tuple[int, int]:
        """Produce with acks=all. Returns error code and base offset."""
        part = struct.pack(">ii", partition, len(records)) + records
        named = string(topic) + struct.pack(">i", 1) + part
        body = struct.pack(">hhii", -1, -1, 10_000, 1) + named
        answer = self.request(PRODUCE, version, body)
        at = 4 + 2 + len(topic) + 4 + 4
        error_code, base_offset = struct.unpack_from(">hq", answer, at)
        return error_code, base_offset

    def fetch(self, topic: str, offset: int, *, partition: int = 0) -> FetchedPartition:
        """Returns the answer to one Fetch from `offset`, without waiting: batches as they are stored."""
        place = struct.pack(">iqi", partition, offset, 1 << 24)
        named = string(topic) + struct.pack(">i", 1) + place
        body = struct.pack(">iiiibi", -1, 0, 0, 1 << 25, 0, 1) + named
        answer = self.request(FETCH, 4, body)
        at = 4 + 4 + 2 + len(topic) + 4 + 4
        numbers = struct.unpack_from(">hqqi", answer, at)
        error_code, high_watermark, last_stable_offset, aborted = numbers
        at += 22 + max(aborted, 0) * 16
        (size,) = struct.unpack_from(">i", answer, at)
        records = answer[at + 4 : at + 4 + max(size, 0)]
        return FetchedPartition(
            error_code=error_code,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            records=records,
        )

    def earliest_offset(self, topic: str, *, partition: int = 0) -> int:
        """Returns the log start offset, by ListOffsets."""
        return self._offset(topic, partition, EARLIEST)

    def latest_offset(self, topic: str, *, partition: int = 0) -> int:
        """Returns the high watermark, by ListOffsets."""
        return self._offset(topic, partition, LATEST)

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        place = struct.pack(">iq", partition, timestamp)
        named = string(topic) + struct.pack(">i", 1) + place
        answer = self.request(LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + named)
        at = 4 + 2 + len(topic) + 4 + 4
        error_code, _, offset = struct.unpack_from(">hqq", answer, at)
        assert error_code == 0, f"ListOffsets answered {error_code}"
        return int(offset)


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def batches_of(records: bytes) -> list[bytes]:
    """Returns the whole batches of an answer (magic 2), one slice each."""
    batches = []
    while len(records) >= BATCH_OVERHEAD:
        size = BATCH_OVERHEAD + struct.unpack_from(">i", records, 8)[0]
        if size > len(records):
            break
        batches.append(records[:size])
        records = records[size:]
    return batches


def codec_bits(batch: bytes) -> int:
    """Returns the codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    return int(struct.unpack_from(">h", batch, BATCH_ATTRIBUTES)[0]) & 7


def next_offset(batch: bytes) -> int:
    base, last_delta = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 23)[0]
    return int(base + last_delta + 1)


def all_batches(connection: RawConnection, topic: str, *, partition: int = 0) -> list[bytes]:
    """Returns every batch of a partition from offset 0 to its high watermark."""
    offset = 0
    found: list[bytes] = []
    while True:
        answer = connection.fetch(topic, offset, partition=partition)
        assert answer.error_code == 0, f"Fetch answered {answer.error_code}"
        batches = batches_of(answer.records)
        if not batches:
            assert offset >= answer.high_watermark, f"nothing at {offset}"
            return found
        found += batches
        offset = next_offset(batches[-1])
