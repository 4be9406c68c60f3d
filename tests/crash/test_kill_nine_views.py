"""SIGKILL under producers and readers of views: a reader at the end has no value that is older than
acknowledged, and no aborted one.

The readers keep their state and their position across the kills, and passes run all the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from protocol.records.record_batch import read_records
from tests.harness.broker_process import BrokerProcess
from tests.harness.kill_cycles import outliving_kills
from tests.harness.log_builder import headers_in
from tests.harness.raw_connection import ConnectionEnded, RawConnection
from tests.harness.rising_numbers import EXACT, PLAIN, RisingNumbers

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
}
INFLATED_BYTES_MAX = 1 << 26


@dataclass(slots=True)
class Followed:
    """What the reader of one view has."""

    position: int = 0
    numbers: dict[bytes, int] = field(default_factory=dict)


class Followers(RisingNumbers):
    """A reader for each view."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        super().__init__(bootstrap, choices)
        self.port = 0
        self.followed = {topic: Followed() for topic in self.known}
        self.ends = 0
        """How often a reader was at the end of its view."""

    def read(self, topic: str) -> None:
        its = self.followed[topic]
        least = dict(self.known[topic])
        try:
            with RawConnection(self.port) as connection:
                end = connection.latest_offset(f"{topic}.latest")
                while its.position < end:
                    if not self._read_on(connection, topic, its):
                        return
        except (OSError, ConnectionEnded):
            return  # The broker was killed, or starts.
        self.ends += 1
        for key, number in least.items():
            self.check(topic, key, its.numbers.get(key, 0), number)

    def _read_on(self, connection: RawConnection, topic: str, its: Followed) -> bool:
        """Fetch once. Returns False if the broker cannot answer now."""
        answer = connection.fetch(f"{topic}.latest", its.position)
        if answer.error_code:
            return False
        headers = headers_in(answer.records)
        assert headers, f"nothing at {its.position}, and {answer.high_watermark} is the end"
        at = 0
        for header in headers:
            if not header.is_control:
                self._take(answer.records, at, its)
            at += header.size_bytes
        its.position = headers[-1].next_offset
        return True

    def _take(self, data: bytes, at: int, its: Followed) -> None:
        for record in read_records(data, at, decompressed_bytes_max=INFLATED_BYTES_MAX):
            if record.offset >= its.position:
                assert record.key is not None
                assert record.value is not None
                its.numbers[record.key] = int(record.value)


def check(broker: BrokerProcess, followers: Followers) -> None:
    followers.port = broker.port
    followers.start_to_read()
    assert not followers.faults, followers.faults[:5]


@pytest.mark.crash
def test_no_reader_at_the_end_of_a_view_has_what_is_older_than_acknowledged_or_was_aborted(
    tmp_path: Path,
) -> None:
    topics = {PLAIN: CONFIG, EXACT: CONFIG}
    with outliving_kills(tmp_path, topics, Followers, check) as (_, followers):
        assert not followers.faults, followers.faults[:5]
        assert followers.ends > 20
