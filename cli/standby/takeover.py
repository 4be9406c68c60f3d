"""Lets a standby take over from its source: decides what is missing, fences the source, and waits for
the rest. What follows, from `promotion.json` on, is a start of a broker (`server/standby`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from cli.standby.coordinator_following import CoordinatorFollowing
from cli.standby.progress import Progress, State
from cli.standby.whole_broker import WholeBroker
from protocol.wire.numbers import Offset
from server.client.access import Access
from server.client.broker_client import connected
from server.client.errors import ClientFailed
from server.standby.promotion import Promotion
from server.standby.takeover import SourceLog, behind, fence, final_ends
from storage.formats.topic_partition import TopicPartition

WAIT_SECONDS = 60.0
"""How long a fenced source may take until everything is copied, unless the command says otherwise."""
RESTART_SECONDS = 30.0
"""How long a source may take to start again fenced, also if its last records are not waited for."""
PATIENCE_SECONDS = 10.0
"""How long a promotion waits for topics that come and go, before it refuses."""
LOOK_SECONDS = 0.1


class TakeoverRefused(Exception):
    """The standby does not take over, with the reason."""

    def __init__(self, message: str, missing: list[str]) -> None:
        super().__init__(message)
        self.missing = missing
        """What it lacks of the source, or may lack, a sentence each."""


class Takeover:
    """The way of one standby to its promotion. `decided` is set once there is no way back."""

    def __init__(
        self,
        leader: str,
        access: Access,
        progress: Progress,
        whole: WholeBroker,
        coordinators: CoordinatorFollowing,
    ) -> None:
        # Constant after construction
        self._leader = leader
        self._access = access
        self._progress = progress
        self._whole = whole
        self._coordinators = coordinators
        self._lock = asyncio.Lock()
        # State
        self.decided: asyncio.Future[Promotion] = asyncio.get_running_loop().create_future()
        """What the standby is promoted with."""

    async def promote(self, *, is_forced: bool, wait_s: float = WAIT_SECONDS) -> Promotion:
        """Decide to take over.

        Args:
            is_forced: take over without an answer of the source, or without all of its records.
            wait_s: how long to wait for the source's last records once it is fenced.

        Raises:
            TakeoverRefused: records are missing, or may be; or it was promoted already.
        """
        async with self._lock:
            if self._progress.state is State.PROMOTED:
                raise TakeoverRefused("the standby was promoted already, and serves clients", [])
            if self.decided.done():
                raise TakeoverRefused("the standby is being promoted already", [])
            if not self._whole.is_following:
                raise TakeoverRefused("the standby is still starting: try again", [])
            if not is_forced:
                await self._check_ready()
            missing = await self._fenced(is_forced=is_forced, wait_s=wait_s)
            promotion = await self._promotion(missing, is_forced=is_forced)
            self.decided.set_result(promotion)
            self._progress.enter(State.PROMOTING)
            return promotion

    async def _check_ready(self) -> None:
        """Refuse, before the source is fenced, if its last records could not be waited for.

        While the source answers, partitions of topics that come and go are waited for.
        """
        until_s = time.monotonic() + PATIENCE_SECONDS
        while missing := await self._missing(waits=True):
            is_answered = (
                self._progress.state is not State.WAITING and not self._whole.facts().reason
            )
            if not is_answered or time.monotonic() >= until_s:
                raise TakeoverRefused(
                    "the standby lacks records of its source, or may lack some; --force promotes it"
                    " nevertheless",
                    missing,
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _missing(self, *, waits: bool) -> list[str]:
        """Returns what the standby lacks as far as it knows, without asking the source.

        Args:
            waits: whether the last records will be waited for.
        """
        progress, missing = self._progress, self._whole.missing(waits=waits)
        if progress.state is not State.CURRENT:
            missing.append(
                f"metadata: it is {progress.state}, so topics and settings may be missing"
            )
        if progress.coordinators_reason is not None:
            missing.append(f"the coordinators' topics: {progress.coordinators_reason}")
        missing += [reason for topic in progress.coordinators for reason in topic.waiting]
        if not waits:
            missing += await self._coordinators.behind()
        return missing

    async def _fenced(self, *, is_forced: bool, wait_s: float) -> list[str]:
        """Let the source refuse writes, and wait for its last records. Returns what is missing then."""
        try:
            async with connected(self._leader, self._access) as client:
                await fence(client, self._progress.follower_id)
            ends = await self._final_ends(time.monotonic() + max(wait_s, RESTART_SECONDS))
        except ClientFailed as error:
            text = f"the source does not answer ({error}), so what was written last may be missing"
            if is_forced:
                return [*await self._missing(waits=False), f"unknown: {text}"]
            raise TakeoverRefused(f"{text}; --force promotes without it", []) from error
        missing = await self._until_copied(ends, time.monotonic() + wait_s)
        if missing and not is_forced:
            raise TakeoverRefused(
                "the source refuses writes now, and this is not copied yet: try again, take it with"
                " --force, or let the source serve again (delete its property broker.fenced.by)",
                missing,
            )
        return missing

    async def _final_ends(self, until_s: float) -> Mapping[SourceLog, Offset]:
        """Returns where the source's logs end, once it has started again as a fenced broker."""
        while True:
            try:
                async with connected(self._leader, self._access) as client:
                    assert self._progress.cluster_id is not None
                    return await final_ends(client, self._leader, self._progress.cluster_id)
            except ClientFailed:
                if time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _until_copied(self, ends: Mapping[SourceLog, Offset], until_s: float) -> list[str]:
        """Wait until everything is here. Returns what is not, when the time is up."""
        fenced_s = time.monotonic()
        while True:
            missing = await self._not_copied(ends, fenced_s)
            if not missing or time.monotonic() >= until_s:
                return missing
            await asyncio.sleep(LOOK_SECONDS)

    async def _not_copied(self, ends: Mapping[SourceLog, Offset], fenced_s: float) -> list[str]:
        copied = {
            SourceLog(each.id.topic_id, TopicPartition(each.id.name, each.id.partition)): Offset(
                each.end
            )
            for each in await self._coordinators.places()
        }
        missing = behind(ends, self._whole.ends() | copied)
        seen_s = self._progress.seen_s
        is_current = self._progress.state is State.CURRENT and not self._progress.lag
        if not is_current or seen_s is None or seen_s < fenced_s:
            missing.append("metadata: not all entries of the source are here")
        elif not missing:
            await self._whole.forget_gone(is_final=True)
            # What was put aside may be a topic of the source, which has to be copied once more.
            missing = behind(ends, self._whole.ends() | copied)
        return [*missing, *self._whole.unsure()]

    async def _promotion(self, missing: list[str], *, is_forced: bool) -> Promotion:
        progress = self._progress
        epochs = [
            self._whole.highest_epoch(),
            progress.leader_term or 0,
            progress.facts.term,
            *(each.last_epoch for each in await self._coordinators.places()),
        ]
        return Promotion(
            promoted_ms=time.time_ns() // 1_000_000,
            standby=progress.follower_id,
            source=self._leader,
            forced=is_forced,
            epoch=max(epochs),
            missing=missing,
            unknown_topics=await self._whole.unknown_topics(),
        )
