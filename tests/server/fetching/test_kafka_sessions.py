"""What each request in a fetch session gets: Apache Kafka 4.3.1's answers, line by line.

`kafka_4_3_1_sessions.txt` was written by `tests.harness.fetch_sessions` against Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.fetch_sessions import transcript
from tests.harness.served_broker import serving_broker

TRANSCRIPT = Path(__file__).with_name("kafka_4_3_1_sessions.txt")


def ours(lines: list[str]) -> list[str]:
    """Returns the lines that are right here: Kafka's, but a full request for fewer than two partitions
    begins no session."""
    return [NO_SESSION_NEEDED.get(line, line) for line in lines if line != NEXT_IN_EMPTY]


NO_SESSION_NEEDED = {"no session epoch 0:  -> S1": "no session epoch 0:  -> no session"}
NEXT_IN_EMPTY = "S1 epoch 1:  -> no session"


async def test_every_request_in_a_session_is_answered_as_by_kafka(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        lines = await transcript(*served.broker.addresses["PLAINTEXT"])
    assert lines.splitlines() == ours(TRANSCRIPT.read_text("utf-8").splitlines())
