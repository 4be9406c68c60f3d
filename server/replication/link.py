"""One link: finds the source's topics, makes their mirrors, and runs copiers for each of its brokers.

    every 30 s, or when a copier asks   topics, partitions, properties, leaders and ACLs of the source
    every second                        slots that have changed: how far each mirror is, as a group's
                                        offsets
    always                              copiers, some for each broker of the source (`copying.py`)
    every 10 s                          committed offsets of the source's groups (`group_sync.py`)

A source that is fenced has no coordinator: a standby's link then copies without slots, and looks at the
topics more often. Its cleaner does not run, so nothing can be missed.

What the link knows of the source decides what an answer means for a partition (`link_source.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from metrics.facts import LinkFacts
from protocol.wire.numbers import Offset
from server.client.access import Access
from server.client.broker_client import BrokerClient, connected
from server.client.errors import ClientFailed
from server.client.pauses import MIRROR, STANDBY, Pauses
from server.replication.acl_sync import AclFacts, AclSync
from server.replication.copying import SourceCopier
from server.replication.fetch_pace import FetchPace
from server.replication.findings import SourceAnswer
from server.replication.groups.group_sync import GroupFacts, GroupSync
from server.replication.groups.local_groups import LocalGroups
from server.replication.link_source import LinkSource
from server.replication.link_spec import ASIDE, LinkSpec
from server.replication.mirror import Mirror
from server.replication.mirror_topics import MirrorTopics
from server.replication.new_copies import NewCopies
from server.replication.requests import FetchBounds
from server.replication.slot_content import resync_of, safe_ms_of
from server.replication.slots import commit_slots, coordinator_address, stored_slots
from server.replication.source_topics import Fetcher, find_topics
from server.replication.state_table import Event, MirrorState
from server.replication.writer import MirrorWriter
from server.runtime.tasks import report_failure, spawn
from storage.files.errors import StorageError
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.replication")

REFRESH_SECONDS = 30.0
SLOTS_SECONDS = 1.0
URGENT_REFRESH_SECONDS = 5.0
"""For a standby that lacks a mirror, or waits for the last records of a fenced source."""
OWN_CLUSTER = "the source is this cluster itself"
OTHER_CLUSTER = "the source belongs to another cluster than this standby"
NO_LEADER = SourceAnswer(error="no broker of the source leads this partition")


@loop_thread
class Link:
    """Follows one source. Its manager starts and stops it."""

    __slots__ = (
        "_access",
        "_acls",
        "_asks_without_slots",
        "_bounds",
        "_cluster_id",
        "_copiers",
        "_fetchers",
        "_groups",
        "_is_fenced",
        "_led_by",
        "_led_by_nobody",
        "_letting_go",
        "_mirrors",
        "_now_ms",
        "_pace",
        "_pauses",
        "_promoted",
        "_stored",
        "_tasks",
        "_topics",
        "_writer",
        "has_followed",
        "new_copies",
        "problems",
        "reason",
        "source",
        "spec",
        "unmirrored",
    )

    def __init__(
        self,
        spec: LinkSpec,
        topics: MirrorTopics,
        writer: MirrorWriter,
        groups: LocalGroups,
        acls: AclSync,
        *,
        bounds: FetchBounds,
        fetchers: int,
        cluster_id: str,
        sparse_level: Callable[[], int],
        is_fenced: Callable[[BrokerClient], Awaitable[bool]],
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        """
        Args:
            fetchers: how many copiers there are for each broker of the source.
            cluster_id: this cluster's, which cannot be its own source, except that of a standby.
            sparse_level: returns this cluster's level of the feature `sparse.log`.
            is_fenced: returns whether the source of a standby has started fenced.
            now_ms: returns the wall time.
            monotonic: returns seconds that never go back.

        Raises:
            Misconfigured: the client properties cannot work, for example because a file is gone.
        """
        # Constant after construction
        self._topics = topics
        self._writer = writer
        self._bounds = bounds
        self._fetchers = fetchers
        self._cluster_id = cluster_id
        self._is_fenced = is_fenced
        self._now_ms = now_ms
        self._acls = acls
        self._access: Access = spec.access()
        self._pauses = self._new_pauses(spec)
        self.source = LinkSource(
            topics,
            self._access,
            is_standby=spec.is_standby,
            follower=spec.group if spec.resync == ASIDE else None,
            sparse_level=sparse_level,
            now_ms=now_ms,
        )
        """What it knows of its source's topics."""
        self._pace = FetchPace(spec.bytes_per_second, clock=monotonic)
        self._groups = GroupSync(
            groups,
            self._access,
            brokers=lambda: self.source.found.brokers,
            mirror=lambda partition: self._mirrors.get(partition),
            now_ms=now_ms,
        )
        # State
        self.spec = spec
        self._led_by: Mapping[Fetcher, list[TopicPartition]] = {}
        self._led_by_nobody: Collection[TopicPartition] = ()
        self._mirrors: dict[TopicPartition, Mirror] = {}
        self.new_copies = NewCopies(self._mirrors, writer, self.source.may_have_own)
        self._asks_without_slots = False
        self._letting_go: set[str] = set()
        """Topics that are being promoted."""
        self._promoted: list[Mirror] = []
        """Mirrors that were promoted since the start: they count in totals, which never fall."""
        self._stored: Mapping[TopicPartition, tuple[int, str | None]] = {}
        self._copiers: dict[Fetcher, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_followed = False
        """Whether the source has said since the start which topics it has, and each has its mirrors."""
        self.reason = ""
        """Why the source cannot be asked; empty if it answers."""
        self.problems: Mapping[str, str] = {}
        """Why a topic is not mirrored, by its name."""
        self.unmirrored: Mapping[str, str] = {}
        """Those of them that are due to this broker."""

    # ---------------------------------------------------------------- starting and stopping

    def start(self) -> None:
        """Begin to follow the source."""
        name = f"link {self.spec.name}"
        spawn(self._run(), name, among=self._tasks)
        spawn(self._groups.run(self._group_filter), f"groups of {name}", among=self._tasks)

    async def stop(self) -> None:
        """Stop to follow the source; the mirrors stay as they are."""
        for mirror in self._mirrors.values():
            mirror.happened(Event.STOP)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.new_copies.drop()

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume all partitions; resuming also looks at the source's topics at once, and
        retries what has failed."""
        self.spec = self.spec.paused(is_paused)
        self.source.is_stale = self.source.is_stale or not is_paused
        for mirror in self._mirrors.values():
            mirror.happened(Event.PAUSE if is_paused else Event.RESUME)

    def look_again(self) -> None:
        """Look at the source's topics soon."""
        self.source.is_stale = True

    def alter(self, spec: LinkSpec) -> None:
        """Copy as fast as the changed link says, take its groups along, and resync as it says."""
        self.spec = spec
        self._pace.set_rate(spec.bytes_per_second)

    # ---------------------------------------------------------------- what people see

    def mirrors(self) -> list[Mirror]:
        """Returns the mirror of each partition, by topic and number."""
        in_order = sorted(self._mirrors, key=lambda each: (each.topic, each.partition))
        return [self._mirrors[each] for each in in_order]

    def acl_facts(self) -> AclFacts:
        """Returns what people see of the ACLs that go along."""
        return self._acls.facts()

    def group_facts(self) -> GroupFacts:
        """Returns what people see of the groups whose offsets go along."""
        return self._groups.facts()

    @any_thread
    def totals(self) -> LinkFacts:
        """Returns what metrics show."""
        mirrors = list(self._mirrors.values())
        lags, seconds = dict[str, int](), dict[str, float]()
        for each in mirrors:
            topic = each.log.topic_partition.topic
            lags[topic] = lags.get(topic, 0) + each.lag
            seconds[topic] = max(seconds.get(topic, 0.0), each.lag_ms / 1000)
        every = [*mirrors, *self._promoted]
        return LinkFacts(
            is_answered=not self.reason,
            partitions_by_state=Counter(str(each.state) for each in mirrors),
            lag_offsets=lags,
            lag_seconds=seconds,
            copied_bytes_total=sum(each.copied_bytes for each in every),
            failed_attempts_total=sum(each.failures for each in every),
            cut_offsets_total=sum(each.cut_records for each in every),
            skipped_offsets_total=sum(each.skipped_records for each in every),
            resyncs_started_total=sum(each.resyncs_started for each in every),
            resyncs_completed_total=sum(each.resyncs_completed for each in every),
        )

    def mirrors_of(self, topic: str) -> list[Mirror]:
        """Returns the mirrors of one topic's partitions."""
        return [mirror for each, mirror in self._mirrors.items() if each.topic == topic]

    def _group_filter(self) -> Callable[[str], bool] | None:
        is_following = self.source.found.brokers and not self.spec.is_paused
        return self.spec.group_filter() if is_following else None

    def take(self, logs: Iterable[PartitionLog]) -> None:
        """Count logs as mirrors that the link has not met since its start, because the source has not
        answered, or has a new partition."""
        for log in logs:
            self._mirror(log)

    @asynccontextmanager
    async def letting_go(self, topic: str) -> AsyncIterator[list[str]]:
        """Stop to copy a topic; within the context it is promoted. Everything copied is durable then.

        A topic that is still a mirror behind the context is copied again.

        Yields a sentence for each committed offset that its groups do not continue from.

        Raises:
            StorageError: the disk failed.
        """
        async with self._groups.last_round(self._group_filter()):
            self._letting_go.add(topic)
            ends = dict[TopicPartition, Offset]()
            try:
                for mirror in self._stopped(topic):
                    await self._writer.finish(mirror)
                    ends[mirror.log.topic_partition] = mirror.log.high_watermark
                yield await self._groups.settle(topic, ends)
            finally:
                self._letting_go.discard(topic)

    @asynccontextmanager
    async def dropping(self, topic: str) -> AsyncIterator[None]:
        """Stop to copy a topic; within the context it is deleted or put aside. Its logs stay as they
        are."""
        self._letting_go.add(topic)
        try:
            for mirror in self._stopped(topic):
                await self._writer.drop_copy(mirror)
            yield
        finally:
            self._letting_go.discard(topic)

    def _stopped(self, topic: str) -> list[Mirror]:
        """Stop the mirrors of a topic. Returns them; the last append of each may not be over."""
        mirrors = self.mirrors_of(topic)
        for mirror in mirrors:
            del self._mirrors[mirror.log.topic_partition]
            mirror.happened(Event.STOP)
        self._promoted += mirrors
        return mirrors

    # ---------------------------------------------------------------- following

    async def _run(self) -> None:
        while True:
            try:
                async with connected(self.spec.bootstrap, self._access) as client:
                    await self._follow(client)
            except (ClientFailed, StorageError) as error:
                self._failed(str(error))
            except Exception as error:  # noqa: BLE001 - a link that ends would say nothing more
                report_failure(f"link {self.spec.name}", error)
                self._failed(f"an unexpected error, which the log has: {error}")
            await asyncio.sleep(self._pauses.next())

    def _failed(self, reason: str) -> None:
        if self.reason != reason:
            _log.warning("link %s: %s", self.spec.name, reason)
        self.reason = reason

    async def _follow(self, client: BrokerClient) -> None:
        while self.spec.is_standby and await self._is_fenced(client):
            await self._follow_fenced(client)
        self._ask_without_slots(is_so=False)
        address = await coordinator_address(client, self.spec.group)
        async with connected(address, self._access) as coordinator:
            if not self._mirrors:
                self._stored = await stored_slots(coordinator, self.spec.group)
            while True:
                await self._refresh(client)
                self.reason = ""
                self._pauses.reset()
                is_urgent = self.spec.is_standby and self.unmirrored
                seconds = URGENT_REFRESH_SECONDS if is_urgent else REFRESH_SECONDS
                await self._tend(seconds, coordinator)

    async def _follow_fenced(self, client: BrokerClient) -> None:
        self._ask_without_slots(is_so=True)
        await self._refresh(client)
        self.reason = ""
        self._pauses.reset()
        for mirror in self._mirrors.values():
            if mirror.state is MirrorState.RETRYING:
                mirror.happened(Event.DUE)
        await self._tend(URGENT_REFRESH_SECONDS, None)

    async def _tend(self, seconds: float, coordinator: BrokerClient | None) -> None:
        """Look after the mirrors until the source's topics have to be looked at again.

        At least once: while topics come and go all the time, slots have to be committed, too. They are
        committed last as well: a mirror that was resumed learns at once if its slot no longer holds.

        Args:
            coordinator: takes the slots; None if the source needs none.
        """
        loop, has_slept = asyncio.get_running_loop(), False
        until_s = loop.time() + seconds
        while True:
            if self.spec.is_standby:
                # It waits for what is gone: then the followed metadata decide.
                self._tell_those_that_nobody_leads()
            if not self.spec.is_paused:
                await self.new_copies.begin_by_themselves(self.spec.resync, again=False)
            await self.new_copies.tend()
            if coordinator is not None:
                await self._commit(coordinator)
            if has_slept and (self.source.is_stale or loop.time() >= until_s):
                return
            await asyncio.sleep(SLOTS_SECONDS)
            has_slept = True

    def _ask_without_slots(self, *, is_so: bool) -> None:
        self._asks_without_slots = is_so
        for mirror in self._mirrors.values():
            mirror.asks_without_slot = is_so

    async def _commit(self, coordinator: BrokerClient) -> None:
        mirrors = list(self._mirrors.values())
        facts = self.source.facts()
        for each in await commit_slots(coordinator, self.spec.group, mirrors, facts, self._now_ms):
            self.source.noted(each)

    async def _refresh(self, client: BrokerClient) -> None:
        """Look at the source's topics, and make mirrors and copiers for what is new."""
        self.source.is_stale = False
        found = await find_topics(client, self.spec)
        if (found.cluster_id == self._cluster_id) is not self.spec.is_standby:
            raise ClientFailed(OTHER_CLUSTER if self.spec.is_standby else OWN_CLUSTER)
        self.source.found, self._led_by = found, found.led_by(self._fetchers)
        made = await self._topics.follow(self.spec, found.topics.values())
        self.problems, self.unmirrored = {**found.errors, **made.problems}, made.problems
        for log in made.logs:
            self._mirror(log)
        self.has_followed = True
        self._start_copiers()
        if not self.spec.is_paused:
            await self.new_copies.begin_by_themselves(self.spec.resync, again=True)
        if self.spec.takes_acls and not self.spec.is_paused:
            await self._acls.sync(client, self._topics.names_of(self.spec.name))
        led = {partition for each in self._led_by.values() for partition in each}
        self._led_by_nobody = self._mirrors.keys() - led
        self._tell_those_that_nobody_leads()

    def _tell_those_that_nobody_leads(self) -> None:
        """Judge the mirrors for which no broker of the source can be asked, once they are due."""
        for partition in self._led_by_nobody:
            mirror = self._mirrors.get(partition)
            if mirror is None:
                continue
            mirror.make_due()
            if mirror.is_asking:
                mirror.answered(self.source.judge(mirror, NO_LEADER))

    def _mirror(self, log: PartitionLog) -> None:
        """Copy into a log, unless its topic was promoted since it was looked up, or is right now."""
        partition = log.topic_partition
        is_ours = log.config.mirror_link == self.spec.name
        if not is_ours or partition.topic in self._letting_go:
            return
        if partition not in self._mirrors or self._mirrors[partition].log is not log:
            self._mirrors[partition] = self._new_mirror(log)

    def _new_mirror(self, log: PartitionLog) -> Mirror:
        _, metadata = self._stored.get(log.topic_partition, (0, None))
        mirror = Mirror(
            log,
            now_ms=self._now_ms,
            safe_ms=safe_ms_of(metadata, log.copy_id),
            pauses=self._new_pauses(self.spec),
        )
        mirror.asks_without_slot = self._asks_without_slots
        before = resync_of(metadata, log.copy_id)
        if before is not None and not mirror.own.is_empty:
            mirror.begin_resync(before.cause, puts_aside=before.puts_aside)
        if self.spec.is_paused:
            mirror.happened(Event.PAUSE)
        return mirror

    @staticmethod
    def _new_pauses(spec: LinkSpec) -> Pauses:
        """Returns pauses that suit the source. A standby's is fenced only once, and then has to be
        copied soon."""
        return Pauses(STANDBY if spec.is_standby else MIRROR)

    def _start_copiers(self) -> None:
        for fetcher, task in list(self._copiers.items()):
            if fetcher not in self._led_by or task.done():
                # One that has failed unexpectedly was reported, and begins once more.
                self._copiers.pop(fetcher).cancel()
        for fetcher in self._led_by.keys() - self._copiers.keys():
            address, _ = fetcher
            copier = SourceCopier(
                address,
                self._access,
                partial(self._led, fetcher),
                self.source,
                self._writer,
                self._bounds,
                self._pace,
            )
            self._copiers[fetcher] = spawn(
                copier.run(), f"copier of link {self.spec.name}", among=self._tasks
            )

    def _led(self, fetcher: Fetcher) -> list[Mirror]:
        return [
            self._mirrors[partition]
            for partition in self._led_by.get(fetcher, ())
            if partition in self._mirrors
        ]
