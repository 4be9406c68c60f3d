"""What each transactional request hears in each state: what Apache Kafka 4.3.1 answered, cell by cell.

`kafka_4_3_1_answers.txt` was written by `tests.harness.transaction_scenes` against Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.transactions.markers import Marker, Markers
from server.transactions.metadata import TransactionPartition
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_scenes import matrix, read

TRANSCRIPT = Path(__file__).with_name("kafka_4_3_1_answers.txt")
FEW = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


STRICTER = {
    (f"Ongoing, {protocol}", f"InitProducerId {versions}"): (fenced, answer, fenced, fenced)
    for protocol in ("v1", "v2")
    for versions, fenced in (("v3", "INVALID_PRODUCER_EPOCH"), ("v4-5", "PRODUCER_FENCED"))
    for answer in ("CONCURRENT_TRANSACTIONS",)
}
"""Kafka looks at the producer id alone, and lets a producer that is fenced abort the transaction of
the one that replaced it. Here it is told at once that it is fenced."""


class HeldMarkers:
    """A broker in this process, whose markers wait while they are held."""

    def __init__(self, served: ServedBroker, patch: pytest.MonkeyPatch) -> None:
        self.address = served.broker.addresses["PLAINTEXT"]
        self._may_write = asyncio.Event()
        self._may_write.set()
        write = Markers.write

        async def held(
            markers: Markers, marker: Marker, partitions: set[TransactionPartition]
        ) -> None:
            await self._may_write.wait()
            await write(markers, marker, partitions)

        patch.setattr(Markers, "write", held)

    def hold_markers(self) -> None:
        self._may_write.clear()

    def release_markers(self) -> None:
        self._may_write.set()


async def test_every_request_hears_in_every_state_what_kafka_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read(TRANSCRIPT.read_text()) | STRICTER
    async with serving_broker(tmp_path, **FEW) as served:
        answered = await matrix(HeldMarkers(served, monkeypatch))
    different = [
        f"{' | '.join(row)}: Kafka {cells}, here {answered.get(row)}"
        for row, cells in expected.items()
        if answered.get(row) != cells
    ]
    assert different == [], "\n".join(different)
    assert answered.keys() == expected.keys()
