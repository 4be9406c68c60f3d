"""A client with small requests, one at a time, that knows how long each answer took."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field

from bench.raw_protocol import fetch_request, produce_request
from protocol.record_batch import Record, build_batch
from tests.harness.raw_connection import METADATA, RawConnection, string

TOPIC = "honest"


@dataclass
class HonestClient:
    """Produces (acks=1), fetches and asks for metadata in turn."""

    port: int
    seconds: list[float] = field(default_factory=list)
    """Of each answer since the last `begin`."""

    def __post_init__(self) -> None:
        batch = bytes(build_batch([Record(offset=0, timestamp=0, key=b"k", value=bytes(100))]))
        self._connection = RawConnection(self.port, timeout=120)
        self._frames = (
            produce_request(TOPIC, 0, batch, acks=1),
            fetch_request(TOPIC, 0, 0, bytes_max=1 << 12),
            _metadata_request(),
        )

    def ask(self, count: int) -> list[float]:
        """Send so many requests, each when the one before is answered; seconds of each."""
        seconds = []
        for number in range(count):
            began = time.perf_counter()
            self._connection.send(self._frames[number % len(self._frames)])
            self._connection.receive()
            seconds.append(time.perf_counter() - began)
        return seconds

    def close(self) -> None:
        """Let the connection go."""
        self._connection.socket.close()


def _metadata_request() -> bytes:
    body = struct.pack(">i", 1) + string(TOPIC)
    header = struct.pack(">hhi", METADATA, 1, 1) + string("honest")
    return struct.pack(">i", len(header) + len(body)) + header + body


def percentile_99(seconds: list[float]) -> float:
    """Of measured times."""
    return sorted(seconds)[len(seconds) * 99 // 100]
