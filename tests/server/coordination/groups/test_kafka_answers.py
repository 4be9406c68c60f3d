"""What each request to a classic group gets in each state: Apache Kafka 4.3.1's answers, cell by cell.

`kafka_4_3_1_answers.txt` was written by `tests.harness.group_answers` against Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from protocol.wire.schema import Message
from server.coordination.groups.group_entry import GroupEntry
from tests.harness.group_answers import matrix, read
from tests.harness.group_probes import IDENTITIES
from tests.harness.group_requests import AT_ONCE
from tests.harness.group_scenes import FOLLOWER, LEADER
from tests.harness.served_broker import ServedBroker, serving_broker

TRANSCRIPT = Path(__file__).with_name("kafka_4_3_1_answers.txt")
FEW = {**AT_ONCE, "transaction_state_log_num_partitions": "1"}


def ours(scene: str, request: str, identity: str, cell: str) -> str:
    """Returns the answer that is right here: Kafka's, with these exceptions.

    - Kafka fails with an internal error when a static member's name comes with an unused member id. Here
      that is an error that the client can handle.
    - A group without members, offsets and records is forgotten at once. Kafka keeps it in memory until
      offsets expire the next time.
    - Kafka never answers a JoinGroup or SyncGroup that waits when the same member repeats it, nor a
      SyncGroup that waits when its member leaves. Here each request is answered.
    """
    if identity == "static, pending id" and cell == "UNKNOWN_SERVER_ERROR":
        return "UNKNOWN_MEMBER_ID" if scene in WITHOUT_MEMBERS else "FENCED_INSTANCE_ID"
    if scene == "no such group" and cell.startswith("INCONSISTENT_GROUP_PROTOCOL"):
        return "INCONSISTENT_GROUP_PROTOCOL"
    is_last = (scene, request) == ("Empty, offsets only", "OffsetDelete v0, of the members' topic")
    is_left = scene == "no such group" and request.startswith("LeaveGroup")
    if cell.endswith("NONE") and (is_last or is_left):
        return f"{cell}; then Dead 0"
    is_repeated = (scene, request.split()[0], cell) in REPEATED
    if is_repeated and identity in (LEADER, FOLLOWER):
        return f"{cell}; {identity} hears REBALANCE_IN_PROGRESS"
    if scene == SYNCED and identity == FOLLOWER and request.startswith("LeaveGroup"):
        return f"{cell}; {identity} hears UNKNOWN_MEMBER_ID"
    return cell


SYNCED = "CompletingRebalance, synced"
REPEATED = {("PreparingRebalance, rejoined", "JoinGroup", "waits"), (SYNCED, "SyncGroup", "waits")}
WITHOUT_MEMBERS = ("no such group", "Empty, offsets only", "Empty")


class InThisProcess:
    """A broker in this process, so it is known when nothing more will happen."""

    def __init__(self, served: ServedBroker) -> None:
        self.address = served.broker.addresses["PLAINTEXT"]
        self._table = served.broker.groups.table
        self._broker = served.broker

    async def settle(self, group_id: str, *waiting: asyncio.Task[Message]) -> None:
        idle_turns = 0
        while idle_turns < IDLE_TURNS and not all(task.done() for task in waiting):
            await asyncio.sleep(0)
            idle_turns = 0 if self._is_writing(group_id) else idle_turns + 1

    def _is_writing(self, group_id: str) -> bool:
        """Returns whether the group, or a transaction, waits for the disk."""
        entry = self._table.find(group_id)
        has_writes = isinstance(entry, GroupEntry) and bool(entry.writes or entry.commits)
        return has_writes or bool(self._broker.group_commit._waiting)


IDLE_TURNS = 200
"""Turns of the loop in which a request gets from the client to the group."""


async def test_every_request_is_answered_in_every_state_as_by_kafka(tmp_path: Path) -> None:
    names = [identity.name for identity in IDENTITIES]
    expected = {
        row: tuple(ours(*row, name, cell) for name, cell in zip(names, cells, strict=True))
        for row, cells in read(TRANSCRIPT.read_text()).items()
    }
    async with serving_broker(tmp_path, **FEW) as served:
        answered = await matrix(InThisProcess(served))
    assert answered.keys() == expected.keys()
    different = [
        f"{' | '.join(row)} | {name}: expected {cell}, answered {here}"
        for row, cells in expected.items()
        for name, cell, here in zip(names, cells, answered[row], strict=True)
        if here != cell
    ]
    assert different == [], "\n".join(different)
