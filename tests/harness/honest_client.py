"""A client with small requests, one at a time, that measures the time of each answer."""

from __future__ import annotations

import itertools
import struct
import time
from dataclasses import dataclass

from bench.base.raw_protocol import fetch_request, produce_request
from protocol.records.record_batch import Record, build_batch
from tests.harness.raw_connection import METADATA, RawConnection, string

TOPIC = "honest"


@dataclass
class HonestClient:
    """Produces (acks=1), fetches and requests metadata in turn."""

    port: int

    def __post_init__(self) -> None:
        batch = bytes(build_batch([Record(offset=0, timestamp=0, key=b"k", value=bytes(100))]))
        self._connection = RawConnection(self.port, timeout=120)
        self._frames = (
            produce_request(TOPIC, 0, batch, acks=1),
            fetch_request(TOPIC, 0, 0, bytes_max=1 << 12),
            _metadata_request(),
        )

    def ask(self, count: int, *, seconds_min: float = 0.0) -> list[float]:
        """Send at least `count` requests, each after the previous answer, for at least `seconds_min`.
        Returns the seconds that each took."""
        seconds: list[float] = []
        until = time.perf_counter() + seconds_min
        for number in itertools.count():
            began = time.perf_counter()
            if number >= count and began >= until:
                break
            self._connection.send(self._frames[number % len(self._frames)])
            self._connection.receive()
            seconds.append(time.perf_counter() - began)
        return seconds

    def close(self) -> None:
        """Close the connection."""
        self._connection.socket.close()


def _metadata_request() -> bytes:
    body = struct.pack(">i", 1) + string(TOPIC)
    header = struct.pack(">hhi", METADATA, 1, 1) + string("honest")
    return struct.pack(">i", len(header) + len(body)) + header + body


def percentile_99(seconds: list[float]) -> float:
    """Returns the 99th percentile of measured times."""
    return sorted(seconds)[len(seconds) * 99 // 100]
