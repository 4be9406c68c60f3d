"""Follows the coordinators' partitions, over a connection of its own: a fetch of the metadata that waits
for the next entry must not hold up theirs.

    copies         one thread appends, syncs and takes checkpoints, of all partitions
    checkpoints    another one makes own checkpoints and digests, which take seconds

The loop only moves messages. It asks for one piece of a checkpoint between two fetches, so a partition
that needs one does not hold up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, ParamSpec, TypeVar

from cli.base.broker_client import BrokerClient, connected
from cli.standby.connection import follow_until_broken
from cli.standby.coordinator_copies import (
    CoordinatorCopies,
    DueCheckpoint,
    Plan,
    TopicFacts,
    digest_of,
    make_due,
)
from cli.standby.coordinator_requests import (
    Place,
    ReceivedPiece,
    WantedPiece,
    fetch_answer,
    fetch_request,
    piece_answer,
    piece_request,
)
from cli.standby.copy_thread import in_thread
from cli.standby.directory import StandbyDirectory
from cli.standby.progress import Progress, State
from cli.standby.requests import Refused
from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.wire.error_codes import ErrorCode
from server.client.pauses import Pauses
from server.runtime.tasks import awaited
from storage.formats.coordinator_checkpoint import FOOTER_BYTES, decode_footer

WAIT_MS_MAX = 1_000
"""How long the leader waits for the next record."""
IDLE_SECONDS = 0.25
"""The time between two looks at the metadata while there is nothing to ask for."""
TRIES_MAX = 40
"""How often a verification asks about a partition before it gives up on it."""

P = ParamSpec("P")
T = TypeVar("T")


class CoordinatorFollowing:
    """The copies of one standby, and their way to its leader. Runs on the loop."""

    def __init__(
        self,
        leader: str,
        directory: StandbyDirectory,
        copies: CoordinatorCopies,
        progress: Progress,
        pauses: Pauses,
    ) -> None:
        """
        Args:
            leader: host:port of its internal listener.
            copies: only this object uses them.
        """
        # Constant after construction
        self._leader = leader
        self._directory = directory
        self._copies = copies
        self._progress = progress
        self._pauses = pauses
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="standby-copies")
        self._checkpoint_thread = ThreadPoolExecutor(1, thread_name_prefix="standby-checkpoints")
        # State
        self._making: asyncio.Task[None] | None = None
        self._verifying = asyncio.Lock()

    async def run(self) -> NoReturn:
        """Follow until the task is cancelled.

        Raises:
            CommandFailed: it cannot continue; the text says what to do.
        """
        while True:
            await self._follow_metadata()
            if not self._progress.facts.topics or self._progress.cluster_id is None:
                if self._progress.state is State.CURRENT:
                    # The leader has no such topics yet.
                    await self._tell()
                await asyncio.sleep(IDLE_SECONDS)
                continue
            ended = await follow_until_broken(self._leader, self._follow)
            self._progress.coordinators_wait(ended.reason)
            await asyncio.sleep(self._pauses.next(ended.at_least_s))

    async def places(self) -> tuple[Place, ...]:
        """Returns where the copies end, durably: what they append is synced at once."""
        return await self._in_thread(self._copies.places)

    async def behind(self) -> list[str]:
        """Returns a sentence for each copy that lacks what the leader had at its last answer."""
        return await self._in_thread(self._copies.behind)

    async def close(self) -> None:
        """Close the copies, after `run` has ended."""
        self._copies.stop()
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._checkpoint_thread, _nothing)
        await loop.run_in_executor(self._thread, self._copies.close)
        self._thread.shutdown()
        self._checkpoint_thread.shutdown()

    async def _follow(self, client: BrokerClient) -> NoReturn:
        """Ask over one connection until it breaks."""
        await self._in_thread(self._copies.connected)
        while True:
            await self._follow_metadata()
            plan = await self._in_thread(self._copies.plan)
            if plan.pieces:
                await self._download(client, plan.pieces[0])
            if plan.places:
                await self._fetch(client, plan)
            elif not plan.pieces:
                await asyncio.sleep(IDLE_SECONDS)
            self._pauses.reset()
            await self._tell()
            await self._make_if_due()

    async def _follow_metadata(self) -> None:
        may_remove = self._progress.state is State.CURRENT
        topics = self._progress.facts.topics
        await self._in_thread(lambda: self._copies.follow(topics, may_remove=may_remove))

    async def _fetch(self, client: BrokerClient, plan: Plan) -> None:
        wait_ms = 0 if plan.pieces else WAIT_MS_MAX
        request = fetch_request(
            plan.places, self._cluster_id, self._directory.directory_id, max_wait_ms=wait_ms
        )
        response = await client.call(request, FetchResponse)
        answers = fetch_answer(plan.places, response)
        await self._in_thread(self._copies.receive, answers)
        if response.throttle_time_ms:
            await asyncio.sleep(response.throttle_time_ms / 1000)

    async def _download(self, client: BrokerClient, wanted: WantedPiece) -> None:
        try:
            piece = await self._ask_for(client, wanted)
        except Refused as refused:
            seconds = refused.throttle_ms / 1000
            await self._in_thread(self._copies.piece_refused, wanted, refused.code, seconds)
            return
        await self._in_thread(self._copies.receive_piece, wanted, piece)
        if piece.throttle_ms:
            await asyncio.sleep(piece.throttle_ms / 1000)

    async def _ask_for(self, client: BrokerClient, wanted: WantedPiece) -> ReceivedPiece:
        request = piece_request(wanted, self._cluster_id, self._directory.directory_id)
        return piece_answer(wanted, await client.call(request, FetchSnapshotResponse))

    @property
    def _cluster_id(self) -> str:
        assert self._progress.cluster_id is not None
        return self._progress.cluster_id

    async def _tell(self) -> None:
        facts: tuple[TopicFacts, ...] = await self._in_thread(self._copies.facts)
        self._progress.coordinators_answered(facts)

    # ---------------------------------------------------------------- own checkpoints

    async def _make_if_due(self) -> None:
        """Start to make an own checkpoint, one at a time."""
        if self._making is not None:
            if not self._making.done():
                return
            self._making.result()
            self._making = None
        due = await self._in_thread(self._copies.due_checkpoint)
        if due is not None:
            self._making = awaited(self._make(due))

    async def _make(self, due: DueCheckpoint) -> None:
        made = await self._in_checkpoint_thread(make_due, due)
        if made is not None:
            await self._in_thread(made)

    # ---------------------------------------------------------------- verification

    async def verify(self) -> list[dict[str, object]]:
        """Compare the digest of each partition with the leader's at the same end.

        Returns:
            An entry for each partition with records; `is_equal` is None if it was not compared.

        Raises:
            CommandFailed: the leader cannot be reached.
        """
        async with self._verifying, connected(self._leader) as client:
            places = await self.places()
            return [await self._verified(client, each) for each in places if each.end]

    async def _verified(self, client: BrokerClient, place: Place) -> dict[str, object]:
        result: dict[str, object] = {"partition": str(place.id), "is_equal": None}
        for _ in range(TRIES_MAX):
            try:
                end, digest = await self._leaders_digest(client, place)
            except Refused as refused:
                result["reason"] = str(refused)
                if refused.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    break
                await asyncio.sleep(max(refused.throttle_ms / 1000, IDLE_SECONDS))
                continue
            due = await self._in_thread(self._copies.digest_order, place.id, end)
            if due is None:
                result["reason"] = f"this copy cannot tell its digest at offset {end}"
                await asyncio.sleep(IDLE_SECONDS)
                continue
            own = await self._in_checkpoint_thread(digest_of, due)
            if own is not None and own.end_offset == end:
                result.pop("reason", None)
                return result | {
                    "is_equal": own.digest == digest,
                    "end": end,
                    "records": own.records,
                    "digest": f"{own.digest:032x}",
                    "leader_digest": f"{digest:032x}",
                }
            result["reason"] = "this copy has made or taken a checkpoint meanwhile"
        return result

    async def _leaders_digest(self, client: BrokerClient, place: Place) -> tuple[int, int]:
        """Returns where the leader's checkpoint ends, and its digest. Raises Refused."""
        wanted = WantedPiece(id=place.id, snapshot=None, position=place.end)
        piece = await self._ask_for(client, wanted)
        position = max(0, piece.size - FOOTER_BYTES)
        last = WantedPiece(id=place.id, snapshot=piece.snapshot, position=position)
        footer = decode_footer((await self._ask_for(client, last)).data, str(place.id))
        return piece.snapshot.end, footer.digest

    # ---------------------------------------------------------------- threads

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(self._thread, work, *args, **kwargs)

    async def _in_checkpoint_thread(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await in_thread(self._checkpoint_thread, work, *args, **kwargs)


def _nothing() -> None:
    """Returns once the thread has nothing else to do."""
