"""The copy of one partition of a coordinator's topic, and what its leader has said about it."""

from __future__ import annotations

from dataclasses import replace

from cli.standby.coordinator_requests import Fetched, PartitionId, Place, WantedPiece
from cli.standby.last_batch import LastBatch, is_another, last_batch_of
from protocol.records.batch_header import read_header
from server.client.pauses import STANDBY, Pauses
from server.standby.partition_copy import NO_EPOCH, PartitionCopy


class FollowedPartition:
    """A copy, and how far its leader has answered. One thread at a time."""

    __slots__ = (
        "compared_first",
        "copy",
        "id",
        "is_stuck",
        "leader_end",
        "pauses",
        "refusal",
        "rests_until_s",
    )

    def __init__(self, id_: PartitionId, copy: PartitionCopy) -> None:
        self.id = id_
        self.copy = copy
        self.pauses = Pauses(STANDBY)
        self.compared_first: LastBatch | None = None
        """The copy's last batch, until the leader of this connection has shown the same."""
        self.leader_end: int | None = None
        """The leader's high watermark at its last answer over this connection."""
        self.is_stuck = False
        """Whether that answer had nothing although the leader's log is longer."""
        self.refusal: str | None = None
        """The leader's last error about it."""
        self.rests_until_s = 0.0

    def rest(self, now_s: float, reason: str, at_least_s: float = 0.0) -> None:
        """Ask later."""
        self.refusal = reason
        self.rests_until_s = now_s + self.pauses.next(at_least_s)

    def place(self) -> Place:
        """Returns from where on to ask."""
        batch, copy = self.compared_first, self.copy
        if batch is not None:
            return Place(id=self.id, end=batch.base_offset, last_epoch=NO_EPOCH)
        return Place(id=self.id, end=copy.end, last_epoch=copy.last_epoch)

    def answered(self) -> None:
        """Note an answer without an error."""
        self.refusal = None
        self.pauses.reset()

    def connected(self) -> None:
        """Forget what the leader said over an earlier connection. Raises StorageError."""
        self.leader_end, self.is_stuck = None, False
        self.compared_first = last_batch_of(self.copy.log) if self.copy.wanted is None else None

    def compare(self, answer: Fetched, *, is_first: bool) -> Fetched:
        """Compare the copy's last batch with the leader's. Returns the answer without that batch.

        Args:
            is_first: whether no partition before it in the answer has records.

        Raises:
            ProtocolError: the answer has no sound batches.
        """
        ours, copy = self.compared_first, self.copy
        assert ours is not None
        if not answer.records:
            if is_first and answer.high_watermark < copy.end:
                copy.want(
                    f"the leader's log ends at {answer.high_watermark}, this one at {copy.end}"
                )
            return answer
        # The leader has answered from the last batch on, so no records do not mean that there are none.
        self.compared_first = self.leader_end = None
        theirs = read_header(memoryview(answer.records))
        if is_another(ours, theirs):
            copy.want(
                f"the leader's batch at {theirs.base_offset} is not the one that was followed: the"
                " leader was restored from an older backup"
            )
        is_ours = theirs.base_offset == ours.base_offset
        return replace(answer, records=answer.records[theirs.size_bytes :]) if is_ours else answer

    def wanted_piece(self) -> WantedPiece:
        """Returns the piece of a checkpoint to ask for."""
        wanted, (snapshot, position) = self.copy.wanted, self.copy.next_piece
        assert wanted is not None
        if snapshot is None:
            position = wanted.end_min
        return WantedPiece(id=self.id, snapshot=snapshot, position=position)

    def waits_for(self) -> str:
        """Returns why it does not follow the log now; empty if it does."""
        wanted = self.copy.wanted
        reasons = [each for each in (wanted and wanted.reason, self.refusal) if each]
        return f"{self.id}: {'; '.join(reasons)}" if reasons else ""
