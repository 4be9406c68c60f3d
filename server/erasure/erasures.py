"""The erasures of this broker: accepts them, does what they need, certifies them. Sole owner of them.

    look    every few seconds, while there are erasures that are not final: what does each need next?
    work    one task for each log: a pass, or one reading for all that need a proof (`log_works.py`)
    step    the table of states says what follows (`state_table.py`)

An erasure is durable in the metadata store before its request is answered, and so is each change of its
state. What was read of the logs is not stored: after a restart it is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from cleaner.pool.pool import CleanerPool
from cleaner.rules.hold import HoldOf
from metrics.facts import ErasureFacts
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import OFFSET_MAX
from server.erasure.certificate import Issuer, Json, PartitionProof, issue
from server.erasure.erasure import PREFIX, Erasure, KeyClaim
from server.erasure.intake import ErasureIntake, ErasureRefused, accepted_text
from server.erasure.log_works import LogWorks, Wanted
from server.erasure.looks import Looks, failed, offline, other_secret, put_back, still_there
from server.erasure.needs import (
    Holder,
    Need,
    Next,
    Risk,
    Tombstone,
    forecast,
    need_of_records,
    need_of_tombstone,
)
from server.erasure.proofs import LogProof, Prover
from server.erasure.state_table import ERASURE_STATES, Action, ErasureState, Event, Guard
from server.erasure.tracked import (
    Tracked,
    are_records_back,
    bound_of,
    is_put_back,
    key_hash_in,
    oldest_final,
    only_waits,
)
from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.clock import Clock
from server.runtime.event_wait import wait_at_most
from server.runtime.executors import Executor
from server.runtime.tasks import guarded, report_failure, spawn
from server.topics.topic import OfflineLog, Topic
from server.topics.topics import Topics
from storage.files.errors import StorageError
from storage.files.kept_copies import KeptCopy
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.erasure.erasures")

LOOK_SECONDS = 5.0
REST_LOOKS = 12
"""An erasure whose tombstones wait for their time is looked at in every twelfth round."""
OPEN_MAX = 10_000
FINAL_MAX = 10_000
FINAL_BYTES_MAX = 16 << 20
"""So many final erasures are remembered, with their certificates, and so many bytes of them as they are
stored; the oldest go first. The newest stays."""


@loop_thread
class Erasures:
    """Owns the erasures from `open` to `stop`."""

    __slots__ = (
        "_clock", "_hold_of", "_intake", "_is_stopped", "_issuer", "_lock", "_looking",
        "_pool", "_prover", "_store", "_threads", "_topics", "_tracked", "_wake", "_works",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        pool: CleanerPool,
        topics: Topics,
        intake: ErasureIntake,
        prover: Prover,
        issuer: Callable[[], Issuer],
        *,
        hold_of: HoldOf,
        clock: Clock,
        threads: Executor,
    ) -> None:
        """
        Args:
            issuer: returns the broker as it signs; reads or creates its key, so it runs in a thread.
            threads: run `issuer`.
        """
        # Constant after construction
        self._store = store
        self._pool = pool
        self._topics = topics
        self._intake = intake
        self._prover = prover
        self._issuer = issuer
        self._hold_of = hold_of
        self._clock = clock
        self._threads = threads
        self._lock = asyncio.Lock()
        """Held during a round of looks."""
        self._wake = asyncio.Event()
        self._works = LogWorks(pool, prover, clock, self.all, self._wake.set)
        # State
        self._tracked: dict[str, Tracked] = {}
        """By id, the oldest first."""
        self._looking: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def open(self) -> None:
        """Read the stored erasures, and continue with them.

        Raises:
            StorageError: the store cannot be read.
        """
        found = []
        for entry in (await self._store.range(PREFIX)).entries:
            try:
                erasure = Erasure.from_store(entry.key, entry.value)
                found.append(Tracked(erasure, stored_bytes=len(entry.value)))
            except (KeyError, TypeError, ValueError) as error:
                _log.error("%s: left alone, because it cannot be read: %r", entry.key, error)
            await asyncio.sleep(0)
        for tracked in sorted(found, key=lambda each: each.erasure.requested_ms):
            self._tracked[tracked.erasure.id] = tracked
        self._start_looking()

    async def stop(self) -> None:
        """End the looks and the work. Call it after the pool has stopped.

        A request that is being stored is still answered; the next start continues with it.
        """
        self._is_stopped = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._works.stop()

    # ---------------------------------------------------------------- requests

    async def request(self, topic: str, keys: Sequence[bytes], within_ms: int) -> list[Erasure]:
        """Erase keys of a topic. Their tombstones are durable, and so are the erasures.

        Raises:
            ErasureRefused: nothing is erased; some tombstones may be appended.
            CleaningAborted, ProtocolError, StorageError: as `ErasureIntake.accept`.
        """
        if self._is_stopped:
            raise ErasureRefused(409, "the broker is stopping: ask again after its next start")
        if len(self._open()) + len(keys) > OPEN_MAX:
            raise ErasureRefused(409, f"{OPEN_MAX} erasures are not complete yet: wait for them")
        accepted = await self._intake.accept(topic, keys, within_ms)
        puts = [Put(key=each.store_key, value=each.to_store()) for each in accepted]
        await self._store.txn((), puts)
        for each in accepted:
            self._tracked[each.id] = Tracked(each)
        _log.info("%s", accepted_text(accepted))
        self._start_looking()
        with guarded("erasures"):  # They are durable, so the client must not ask again.
            await self._looked()
        return accepted

    async def forget(self, erasure_id: str) -> None:
        """Forget an erasure. Its tombstones stay in the logs; nothing more is done or certified.

        Raises:
            ErasureRefused: there is no such erasure.
            StorageError: it cannot be made durable; nothing has changed.
        """
        async with self._lock:
            tracked = self._tracked.get(erasure_id)
            if tracked is None:
                raise ErasureRefused(404, f"there is no erasure {erasure_id}")
            await self._store.txn((), [Delete(key=tracked.erasure.store_key)])
            del self._tracked[erasure_id]
        _log.info("erasure %s of a key of %s is forgotten", erasure_id, tracked.erasure.topic)

    def get(self, erasure_id: str) -> Tracked | None:
        """Returns an erasure; None if there is none with this id."""
        return self._tracked.get(erasure_id)

    def all(self) -> list[Tracked]:
        """Returns all erasures, the oldest first."""
        return list(self._tracked.values())

    @any_thread
    def facts(self) -> ErasureFacts:
        """Returns the values for a scrape."""
        now_ms = self._clock.now_ms()
        tracked = list(self._tracked.values())
        states = dict.fromkeys((state.value for state in ErasureState), 0)
        for each in tracked:
            states[each.erasure.state.value] += 1
        risks = [each.risk(now_ms) for each in tracked]
        ends = [each.erasure.deadline_ms for each in tracked if not each.erasure.state.is_final]
        return ErasureFacts(
            by_state=states,
            at_risk=sum(risk is Risk.AT_RISK for risk in risks),
            overdue=sum(risk is Risk.OVERDUE for risk in risks),
            next_deadline_seconds=(min(ends) - now_ms) / 1000 if ends else None,
        )

    async def verify(
        self, log: PartitionLog, key_hash: bytes, below: int
    ) -> tuple[LogProof, list[KeptCopy]]:
        """Read a log again for a certificate: the proof, and the files that are left beside the log.

        Raises as `Prover.prove`.
        """
        proof = await self._prover.prove(log, [key_hash], below, self._clock.now_ms())
        return proof, await self._prover.left_of(log, proof, drops=False)

    async def own_public_key(self) -> bytes:
        """Returns the key with which the broker signs. Raises StorageError."""
        issuer = await self._threads.run(self._issuer)
        return issuer.key.public_key

    async def is_about(self, claim: KeyClaim, key: bytes) -> bool:
        """Returns whether the salted hash of a certificate is that of a key."""
        return await self._threads.run(claim.holds_for, key)

    # ---------------------------------------------------------------- looks

    def _open(self) -> list[Tracked]:
        return [each for each in self._tracked.values() if not each.erasure.state.is_final]

    def _start_looking(self) -> None:
        self._wake.set()
        if self._is_stopped or not self._open():
            return
        if self._looking is None or self._looking.done():
            self._looking = spawn(self._look_again_and_again(), "erasures")

    async def _look_again_and_again(self) -> None:
        while self._open():
            self._wake.clear()
            with guarded("erasures"):
                await self._looked()
            if self._open():
                await wait_at_most(self._wake, LOOK_SECONDS)

    async def _looked(self) -> None:
        """Look at all erasures that are not final, and begin what they need, unless it is stopped."""
        async with self._lock:
            if not self._is_stopped:
                await self._look_at_all()

    async def _look_at_all(self) -> None:
        now_ms = self._clock.now_ms()
        looks = Looks(self._pool, self._hold_of, self._pool.status(), now_ms)
        wanted: dict[TopicPartition, Wanted] = {}
        for tracked in self._open():
            if tracked.rests_for > 0:
                tracked.rests_for -= 1
                continue
            try:
                await self._look_at(tracked, looks, wanted, now_ms)
            except Exception as error:  # noqa: BLE001 - one erasure does not hold up the others
                _look_failed(tracked, error)
            await asyncio.sleep(0)
        for each in wanted.values():
            if not self._is_stopped:
                self._works.begin(each)

    async def _look_at(
        self, tracked: Tracked, looks: Looks, wanted: dict[TopicPartition, Wanted], now_ms: int
    ) -> None:
        """Find out what one erasure needs, and take the step that follows."""
        erasure = tracked.erasure
        topic = self._topics.get(erasure.topic)
        if topic is None or topic.id != erasure.topic_id:
            await self._step(tracked, Event.DELETED, Guard.ALWAYS, topic)
            return
        needs = []
        for number in range(len(erasure.partitions)):
            need = await self._need(tracked, topic, number, looks, now_ms)
            needs.append(need)
            log = topic.partitions[number]
            if need.next in (Next.PASS, Next.PROVE) and isinstance(log, PartitionLog):
                want = wanted.setdefault(log.topic_partition, Wanted(log))
                if need.next is Next.PROVE:
                    want.proofs.append((tracked, bound_of(erasure, number)))
        tracked.needs = tuple(needs)
        # At once, so that nobody sees an erasure that is held by nothing.
        guard, tracked.kept = await self._guard(tracked, topic)
        tracked.forecast = forecast(
            [(need, self._then_ms(tracked, number, topic)) for number, need in enumerate(needs)],
            now_ms,
            tracked.kept,
        )
        await self._step(tracked, Event.LOOK, guard, topic)

    def _then_ms(self, tracked: Tracked, number: int, topic: Topic) -> int:
        """Returns how long the tombstone of a partition stays after it was cleaned."""
        part = tracked.erasure.partitions[number]
        waits = part.has_tombstone and tracked.erasure.state is not ErasureState.ERASED
        return topic.config.delete_retention_ms if waits else 0

    async def _need(
        self, tracked: Tracked, topic: Topic, number: int, looks: Looks, now_ms: int
    ) -> Need:
        """Returns what an erasure needs in one partition."""
        erasure = tracked.erasure
        part, log = erasure.partitions[number], topic.partitions[number]
        if log.offline_reason is not None or not isinstance(log, PartitionLog):
            name = str(log.topic_partition)
            return Need(Next.WAIT, offline(name, number, log.offline_reason or ""))
        key_hash = erasure.key_hash(log.identity.hash_key)
        if key_hash is None:
            return Need(Next.WAIT, other_secret(str(log.topic_partition), erasure.topic, number))
        if is_put_back(part, log):
            return Need(Next.WAIT, put_back(log, part.offset))
        is_erased = erasure.state is ErasureState.ERASED
        if is_erased and not part.has_tombstone:
            return Need(Next.NOTHING)
        proof = _proof_of(tracked, number, log)
        first = OFFSET_MAX if proof is None else proof.traces.first_offset(key_hash)
        if proof is not None and first >= bound_of(erasure, number):
            return Need(Next.NOTHING)
        if (failure := self._works.failure(log)) is not None:
            return Need(Next.WAIT, failed(log.topic_partition, failure))
        if proof is not None:
            rests = not self._works.may_try(log)
            return Need(Next.WAIT, still_there(log, first)) if rests else Need(Next.PASS)
        facts = looks.facts_of(log)
        if not is_erased:
            return need_of_records(facts, part.offset, has_tombstone=part.has_tombstone)
        tombstone = await self._tombstone(tracked, number, log, part.offset)
        return need_of_tombstone(facts, part.offset, tombstone, now_ms)

    async def _tombstone(
        self, tracked: Tracked, number: int, log: PartitionLog, offset: int
    ) -> Tombstone:
        """Returns the tombstone of a partition; reads it only if segments have changed."""
        segments, known = tracked.tombstones.get(number, ((), Tombstone(is_gone=False)))
        if segments is not log.segments:
            segments = log.segments
            known = (await self._prover.tombstones_at(log, [offset]))[offset]
            tracked.tombstones[number] = segments, known
        return known

    async def _guard(self, tracked: Tracked, topic: Topic) -> tuple[Guard, tuple[Holder, ...]]:
        """Returns the guard of a look that holds, by what the erasure needs, and what holds it."""
        erasure = tracked.erasure
        is_erased = erasure.state is ErasureState.ERASED
        if any(need.next is not Next.NOTHING for need in tracked.needs):
            is_back = is_erased and are_records_back(tracked, topic)
            return (Guard.LEFT if is_back or not is_erased else Guard.TOMBSTONE), ()
        unproven = Guard.TOMBSTONE if is_erased else Guard.LEFT
        copies = []
        for number, proof in [*tracked.proofs.items()]:
            log = topic.partitions[number]
            assert isinstance(log, PartitionLog)
            if not proof.holds_for(log):
                return unproven, ()  # What is kept for undos stays until there is another proof.
            left = await self._prover.left_of(log, proof, drops=True)
            copies += [(number, each) for each in left]
        # Nothing can be undone now. What was undone before needs another proof.
        if not _all_hold(tracked, topic):
            return unproven, ()
        if copies:
            return Guard.KEPT, tuple(
                Holder(partition=number, text=f"{each.path}: {each.what}", remedy=each.remedy)
                for number, each in copies
            )
        has_tombstones = any(part.has_tombstone for part in erasure.partitions)
        return (Guard.TOMBSTONE if has_tombstones and not is_erased else Guard.NOTHING), ()

    # ---------------------------------------------------------------- steps

    async def _step(
        self, tracked: Tracked, event: Event, guard: Guard, topic: Topic | None
    ) -> None:
        """Take the step of the table: durable first."""
        erasure, now_ms = tracked.erasure, self._clock.now_ms()
        step = ERASURE_STATES.step(erasure.state, event, guard)
        changed = erasure
        if step.next_state is not erasure.state:
            changed = erasure.moved_to(step.next_state, now_ms)
        if step.action is Action.CERTIFY:
            assert topic is not None
            certificate = await self._certificate(tracked, topic, step.next_state, now_ms)
            changed = replace(changed, certificate=certificate)
        elif step.action is Action.WITHDRAW:
            changed = replace(changed, certificate=None)
            _log.error(
                "erasure %s: records of the key are in %s again; its certificate is withdrawn",
                erasure.id,
                erasure.topic,
            )
        if changed is not erasure:
            value = changed.to_store()
            await self._store.txn((), [Put(key=changed.store_key, value=value)])
            tracked.erasure, tracked.stored_bytes = changed, len(value)
            if step.next_state is not ErasureState.HELD:
                tracked.proofs.clear()
                tracked.tombstones.clear()
                tracked.needs = ()
            _log.info("erasure %s of a key of %s: %s", changed.id, changed.topic, changed.state)
            self._wake.set()
        if changed.state.is_final:
            await self._forget_oldest()
        tracked.rests_for = REST_LOOKS if changed is erasure and only_waits(tracked) else 0

    async def _certificate(
        self, tracked: Tracked, topic: Topic, state: ErasureState, now_ms: int
    ) -> Json:
        erasure = tracked.erasure
        earlier: dict[int, Json] = {}
        if erasure.certificate is not None:
            rows = erasure.certificate["certificate"]["partitions"]
            earlier = {row["partition"]: row for row in rows}
        proofs: list[PartitionProof | Json] = []
        for number, part in enumerate(erasure.partitions):
            proof = tracked.proofs.get(number)
            if proof is None:
                proofs.append(earlier[number])
                continue
            proofs.append(
                proof.partition_proof(
                    key_hash_in(erasure, topic, number),
                    bound_of(erasure, number),
                    tombstone=(
                        part.offset
                        if part.has_tombstone and state is not ErasureState.COMPLETE
                        else None
                    ),
                    had_records=part.has_tombstone,
                    now_ms=now_ms,
                )
            )
        issuer = await self._threads.run(self._issuer)
        return issue(erasure, state, proofs, issuer, now_ms)

    async def _forget_oldest(self) -> None:
        gone = oldest_final(self._tracked.values(), count_max=FINAL_MAX, bytes_max=FINAL_BYTES_MAX)
        if gone:
            await self._store.txn((), [Delete(key=each.store_key) for each in gone])
            for each in gone:
                self._tracked.pop(each.id, None)


def _proof_of(tracked: Tracked, number: int, log: PartitionLog | OfflineLog) -> LogProof | None:
    """Returns the proof of a partition; forgets one that no longer holds."""
    proof = tracked.proofs.get(number)
    if proof is not None and isinstance(log, PartitionLog) and not proof.holds_for(log):
        del tracked.proofs[number]
        return None
    return proof


def _all_hold(tracked: Tracked, topic: Topic) -> bool:
    """Returns whether all proofs hold; forgets the first that does not."""
    logs = [(number, topic.partitions[number]) for number in tracked.proofs]
    return all(_proof_of(tracked, number, log) is not None for number, log in logs)


def _look_failed(tracked: Tracked, error: Exception) -> None:
    """Name a failed look as a holder, until the next look succeeds."""
    text = str(error) or repr(error)
    if isinstance(error, ProtocolError | StorageError):
        _log.warning("erasure %s: %s", tracked.erasure.id, text)
    else:
        report_failure("erasures", error)
    topic = tracked.erasure.topic
    holder = Holder(
        partition=None,
        text=f"the broker could not look at the logs of {topic}: {text}",
        remedy=f"the broker tries again by itself; kompakt compact explain {topic}",
    )
    tracked.kept = (holder,)
    tracked.forecast = replace(tracked.forecast, is_open=True)
