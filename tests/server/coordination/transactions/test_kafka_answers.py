"""Each transactional request gets in each state the answer of Apache Kafka 4.3.1, cell by cell.

`kafka_4_3_1_answers.txt` was written by `tests.harness.transaction_scenes` against Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.coordination.transactions.markers import Marker, Markers
from server.coordination.transactions.metadata import TransactionPartition
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_scenes import Row, matrix, read

TRANSCRIPT = Path(__file__).with_name("kafka_4_3_1_answers.txt")
FEW = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


FENCED, OLD_FENCED = "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"
NOT_OPEN = "INVALID_TXN_STATE"
BUSY, OTHER = "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"

STRICTER: dict[Row, tuple[str, ...]] = {
    # Kafka looks at the producer id alone, and lets a producer that is fenced abort the transaction
    # of the one that replaced it.
    ("Ongoing, v1", "InitProducerId v4-5"): (FENCED, BUSY, FENCED, FENCED),
    ("Ongoing, v2", "InitProducerId v4-5"): (FENCED, BUSY, FENCED, FENCED),
    ("Ongoing, v1", "InitProducerId v3"): (OLD_FENCED, BUSY, OLD_FENCED, OLD_FENCED),
    ("Ongoing, v2", "InitProducerId v3"): (OLD_FENCED, BUSY, OLD_FENCED, OLD_FENCED),
    # Kafka takes the producer that was replaced for one that repeats its end, though the end did not
    # raise the epoch, and tells it the epoch of the producer that replaced it.
    ("CompleteCommit, v1", "EndTxn v5 commit"): (FENCED, NOT_OPEN, FENCED, OTHER),
    ("CompleteCommit, v1", "EndTxn v5 abort"): (FENCED, "NONE, epoch+1", FENCED, OTHER),
    ("CompleteAbort, v1", "EndTxn v5 commit"): (FENCED, NOT_OPEN, FENCED, OTHER),
    ("CompleteAbort, v1", "EndTxn v5 abort"): (FENCED, "NONE, epoch+1", FENCED, OTHER),
}
"""Where two producers could get in each other's way if it were answered as by Kafka."""


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
