"""Copies partitions that one broker of the source leads: one connection, one request at a time.

    fetch    each partition from its mirror's end on
    judge    what the answer means (`findings.py`), and the table's step (`state_table.py`)
    write    append, cut or skip (`writer.py`); the group commit syncs

A round's answer is bounded (`FetchBounds`) and is written before the next request is sent, so a copier
never holds more than one answer.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.access import Access
from server.client.broker_client import BrokerClient, connected
from server.client.errors import ClientFailed
from server.replication.fetch_pace import FetchPace
from server.replication.findings import UNKNOWN, SourceAnswer, Verdict, shows_copy
from server.replication.gap_epoch import AskEpochEnd, epoch_of_gap
from server.replication.mirror import Mirror
from server.replication.requests import (
    EARLIEST,
    LATEST,
    Asked,
    FetchBounds,
    Fetched,
    epoch_answer,
    epoch_request,
    fetch_answers,
    fetch_request,
    offsets_answer,
    offsets_request,
)
from server.replication.state_table import Action, Guard
from server.replication.target import Target
from server.replication.writer import MirrorWriter
from server.runtime.turns import Pace, Turns
from storage.batches.batch_run import check_run
from storage.formats.topic_partition import TopicPartition
from storage.state.leader_epochs import EpochEnd
from storage.threads import loop_thread

_log = logging.getLogger("server.replication")

IDLE_SECONDS = 0.2
"""How often a copier looks whether a partition asks again, if none does."""
IDLE_WAITS = 4
"""While no partition has anything new, the source waits so many times as long. It still answers at
once when it has records; only a partition that is new to the link waits longer."""
NO_EPOCH = Epoch(-1)
COMPARED = (Guard.FITS, Guard.MISSED_TOMBSTONES)
"""What the answer of the right topic may mean if the logs do not diverge."""


class Judge(Protocol):
    """What a copier asks its link about a partition."""

    def topic_id(self, mirror: Mirror) -> uuid.UUID | None:
        """Returns the id of the source's topic; None if it is gone."""

    def may_have_gaps(self) -> bool:
        """Returns whether this cluster can hold a log with gaps; else they are looked for."""

    def compacts(self, mirror: Mirror) -> bool:
        """Returns whether the source's cleaner may remove its last records. Otherwise an empty answer is
        no gap: Apache Kafka answers so, without an error, if a read of tiered storage takes too long."""

    def judge(self, mirror: Mirror, answer: SourceAnswer) -> Verdict:
        """Returns what an answer means."""

    def leader_epoch(self, mirror: Mirror) -> Epoch:
        """Returns the epoch in which the source's broker leads; -1 if it is not known."""

    def name_of(self, mirror: Mirror) -> uuid.UUID | None:
        """Returns by which name the log remembers that the source had all of its records; None if it
        need not."""

    def may_have_own(self, mirror: Mirror) -> bool:
        """Returns whether the mirror's log may have records that the source never had."""


@loop_thread
class SourceCopier:
    """Follows partitions of one broker of the source."""

    __slots__ = (
        "_access",
        "_address",
        "_bounds",
        "_is_idle",
        "_judge",
        "_led",
        "_pace",
        "_turn",
        "_turns",
        "_writer",
    )

    def __init__(
        self,
        address: str,
        access: Access,
        led: Callable[[], Sequence[Mirror]],
        judge: Judge,
        writer: MirrorWriter,
        bounds: FetchBounds,
        pace: FetchPace,
    ) -> None:
        """
        Args:
            address: the broker's advertised host:port.
            led: returns the mirrors of its share of the partitions that the broker leads, as far as the
                link knows.
            pace: how fast all copiers of the link may be together.
        """
        # Constant after construction
        self._address = address
        self._access = access
        self._led = led
        self._judge = judge
        self._writer = writer
        self._bounds = bounds
        self._pace = pace
        self._turns = Turns()
        # State
        self._is_idle = False
        """Whether all partitions were asked for, and none had anything new."""
        self._turn = 0

    async def run(self) -> None:
        """Copy until cancelled. A broken connection makes the partitions retry."""
        while True:
            await self._wait_until_one_asks()
            try:
                async with connected(self._address, self._access) as client:
                    while mirrors := self._asking():
                        await self._pace.pay(await self._round(client, mirrors))
            except ClientFailed as error:
                for mirror in self._asking():
                    mirror.answered(Verdict(guard=Guard.ERROR, reason=str(error)))

    async def _wait_until_one_asks(self) -> None:
        # Retries become due by the clock, so there is no event to wait for.
        while not self._asking():  # noqa: ASYNC110
            await asyncio.sleep(IDLE_SECONDS)

    def _asking(self) -> list[Mirror]:
        """Returns the mirrors to ask for; those whose next attempt is due are among them."""
        mirrors = self._led()
        for mirror in mirrors:
            mirror.make_due()
        return [mirror for mirror in mirrors if mirror.is_asking]

    async def _round(self, client: BrokerClient, asking: Sequence[Mirror]) -> int:
        """Ask once, and write what comes. Returns the bytes of its batches."""
        mirrors = {mirror.log.topic_partition: mirror for mirror in asking}
        targets = {partition: mirror.target for partition, mirror in mirrors.items()}
        asked = self._asked(asking)
        if not asked:
            await asyncio.sleep(IDLE_SECONDS)
            return 0
        ends = {each.partition: each.end for each in asked}
        bounds = self._pace.bounds(self._bounds)
        if self._is_idle:
            bounds = replace(bounds, wait_ms=IDLE_WAITS * bounds.wait_ms)
        response = await client.call(fetch_request(asked, bounds), FetchResponse)
        if response.error_code:
            refusal = SourceAnswer(error_code=response.error_code)
            for mirror in mirrors.values():
                if mirror.is_asking:
                    mirror.answered(self._judge.judge(mirror, refusal))
            return 0
        answers = fetch_answers(asked, response)
        answers |= await self._with_bounds_of_logs(client, answers)
        answers |= await self._confirmed_gaps(client, asked, answers, mirrors)
        pace = Pace(self._turns)
        async for partition, fetched in pace.paced(answers.items()):
            ask = partial(_source_epoch_end, client, partition)
            target = targets[partition]
            assert target is not None, "it was asked for"
            if target.log.log_end_offset != ends[partition]:
                continue  # The copier of a new leader has cut it or filled it meanwhile.
            await self.take(mirrors[partition], target, fetched, ask)
        self._is_idle = len(asked) == len(self._led()) and all(
            mirrors[partition].repeats(fetched) for partition, fetched in answers.items()
        )
        if response.throttle_time_ms:
            await asyncio.sleep(response.throttle_time_ms / 1000)
        return sum(len(each.records) for each in answers.values())

    def _asked(self, asking: Sequence[Mirror]) -> list[Asked]:
        """Returns from where on to fetch. The one that has waited longest for records comes first.

        The source fills its answer in this order, so each gets its turn.
        """
        asked = []
        for mirror in sorted(asking, key=lambda each: each.turn):
            topic_id = self._judge.topic_id(mirror)
            if topic_id is None:
                mirror.answered(self._judge.judge(mirror, SourceAnswer()))
                continue
            assert mirror.target is not None, "it asks"
            log = mirror.target.log
            asked.append(
                Asked(
                    partition=mirror.log.topic_partition,
                    topic_id=topic_id,
                    end=log.log_end_offset,
                    last_epoch=log.epochs.latest if mirror.asks_epoch else NO_EPOCH,
                    before=mirror.idle,
                )
            )
        return asked

    async def _with_bounds_of_logs(
        self, client: BrokerClient, answers: Mapping[TopicPartition, Fetched]
    ) -> dict[TopicPartition, Fetched]:
        """Returns the answers of OFFSET_OUT_OF_RANGE, with where the source's logs start and end."""
        outside = [
            partition
            for partition, each in answers.items()
            if each.answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        ]
        if not outside:
            return {}
        starts, ends = [
            offsets_answer(
                await client.call(offsets_request(outside, timestamp), ListOffsetsResponse)
            )
            for timestamp in (EARLIEST, LATEST)
        ]
        return {
            partition: replace(
                answers[partition],
                answer=replace(
                    answers[partition].answer,
                    start=starts.get(partition, UNKNOWN),
                    high_watermark=ends.get(partition, UNKNOWN),
                ),
            )
            for partition in outside
        }

    async def _confirmed_gaps(
        self,
        client: BrokerClient,
        asked: Sequence[Asked],
        answers: Mapping[TopicPartition, Fetched],
        mirrors: Mapping[TopicPartition, Mirror],
    ) -> dict[TopicPartition, Fetched]:
        """Returns the answers of partitions that seem to end in a gap, each asked for alone."""
        found: dict[TopicPartition, Fetched] = {}
        for each in asked:
            fetched = answers.get(each.partition)
            if fetched is None or fetched.is_alone or not fetched.seems_to_have_gap_from(each.end):
                continue
            if self._judge.compacts(mirrors[each.partition]):
                request = fetch_request([each], replace(self._bounds, wait_ms=0))
                response = await client.call(request, FetchResponse)
                if not response.error_code:
                    found |= fetch_answers([each._replace(before=None)], response)
        return found

    async def take(
        self, mirror: Mirror, target: Target, fetched: Fetched, ask: AskEpochEnd
    ) -> None:
        """Do what an answer about one partition asks for.

        Args:
            target: the log that was asked for.
            ask: asks the source where an epoch ends.
        """
        if not mirror.asks_for(target):
            return  # It was paused or promoted meanwhile, or a resync has begun or ended.
        answer = fetched.answer
        if mirror.is_level_as_before(fetched):
            mirror.noted(answer, target)
            return
        if len(fetched.records) and not self._judge.may_have_gaps():
            answer = replace(answer, first_gap=_first_gap(target, memoryview(fetched.records)))
        verdict = self._judge.judge(mirror, answer)
        await self._note_source(mirror, target, answer, verdict)
        if not mirror.asks_for(target):
            return
        before, waits_for_room = mirror.state, mirror.has_complete_copy
        action = mirror.answered(verdict)
        if mirror.state is not before and verdict.reason:
            _log.warning("%s is %s: %s", mirror.log.topic_partition, mirror.state, verdict.reason)
        if answer.high_watermark >= 0:
            mirror.source_end = target.source_end = answer.high_watermark
        if action is Action.APPEND and answer.error_code:
            # The source has forgotten its epochs with its records: it cannot compare.
            mirror.asks_epoch = False
            mirror.appended()
        elif action is Action.APPEND and not waits_for_room:
            await self._append(mirror, target, fetched, ask)
            if mirror.asks_for(target) and (len(fetched.records) or fetched.has_no_more):
                mirror.appended()
        elif action is Action.CUT:
            await self._writer.cut(mirror, verdict)
        else:
            await self._begin_again_or_skip(mirror, action, verdict)
        if mirror.has_complete_copy:
            await self._writer.swap(mirror, may_have_own=self._judge.may_have_own(mirror))

    async def _note_source(
        self, mirror: Mirror, target: Target, answer: SourceAnswer, verdict: Verdict
    ) -> None:
        """Note which source has answered; remember it if the answer shows that it had all records."""
        name = self._judge.name_of(mirror)
        if target is not mirror.own:
            target.sources.add(name)
            return
        is_compared = verdict.guard in COMPARED and mirror.asks_epoch
        if name is None or not is_compared or target.log.copied_from == name:
            return
        if shows_copy(answer, target.place):
            await self._writer.remember_source(mirror, name)

    async def _append(
        self, mirror: Mirror, target: Target, fetched: Fetched, ask: AskEpochEnd
    ) -> None:
        mirror.judged(fetched)
        if len(fetched.records):
            self._turn += 1
            mirror.turn, mirror.asks_epoch = self._turn, True
        elif fetched.has_gap_from(target.log.log_end_offset) and self._judge.compacts(mirror):
            epoch = await self._epoch_of_gap(mirror, target, ask)
            fetched = replace(fetched, gap_epoch=epoch)
        await self._writer.append(mirror, target, fetched)

    async def _begin_again_or_skip(self, mirror: Mirror, action: Action, verdict: Verdict) -> None:
        if action is Action.BEGIN:
            await self._writer.begin_copy(mirror)
        elif action is Action.SKIP and mirror.resync is None:
            await self._writer.skip(mirror, verdict)
        elif action is Action.SKIP:
            assert verdict.offset is not None, "the verdict of a skip has its offset"
            await self._writer.begin_copy(mirror, verdict.offset)

    async def _epoch_of_gap(self, mirror: Mirror, target: Target, ask: AskEpochEnd) -> Epoch | None:
        return await epoch_of_gap(
            ask,
            last_epoch=target.place.last_epoch,
            leader_epoch=self._judge.leader_epoch(mirror),
            end=target.source_end,
        )


async def _source_epoch_end(
    client: BrokerClient, partition: TopicPartition, epoch: Epoch
) -> EpochEnd:
    request = epoch_request(partition, epoch)
    return epoch_answer(await client.call(request, OffsetForLeaderEpochResponse))


def _first_gap(target: Target, records: memoryview) -> Offset | None:
    """Returns the first offset from the log's end on that an answer skips; None if it skips none."""
    place, size = target.place, len(records)
    run = check_run(
        records, end=place.end, last_epoch=place.last_epoch, size_max=size, batches_max=size
    )
    return run.first_gap
