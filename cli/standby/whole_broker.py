"""The records of a standby: a broker without listeners, whose topics one link to the source fills.

The copies of the metadata and of the coordinators' topics are beside it (`following.py`,
`coordinator_following.py`). Topics that the source has deleted are deleted here, once the followed
metadata no longer has them either: what the link is answered alone could be late. In the directory of an
old primary, topics are put aside if the metadata never had them, or had them with fewer partitions.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.standby.mirrors import LAG_OFFSETS_MAX, STARTING, MirrorsFacts
from cli.standby.progress import Progress, State
from protocol.wire.numbers import Offset
from server.broker import Broker
from server.client.access import Access
from server.config.config import BrokerConfig
from server.net.listener import ListenError
from server.replication.link_spec import ASIDE, STANDBY_LINK, LinkSpec
from server.replication.mirror import MirrorFacts
from server.replication.promotion import missing_at_promotion, unknown
from server.replication.replication import Replication
from server.replication.state_table import MirrorState
from server.runtime.clock import SystemClock
from server.standby.promotion import MirroredTopic
from server.standby.takeover import SourceLog
from server.topics.mirrors import without_own
from server.topics.topic import Topic
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import META_PROPERTIES, join, topic_id_text

_log = logging.getLogger("cli.standby")

NOT_ASKED = "the source was not asked for its topics yet"
LOOK_SECONDS = 1.0
"""The time between two looks for topics that the source has deleted."""


class WholeBroker:
    """The broker of one standby."""

    def __init__(
        self,
        config: BrokerConfig,
        link: LinkSpec,
        progress: Progress,
        files: FileSystem,
        partition_counts: Callable[[Sequence[tuple[str, uuid.UUID]]], Awaitable[list[int]]],
    ) -> None:
        """
        Args:
            partition_counts: returns, for each name and id, how many partitions that topic has in the
                followed metadata; 0 if there is none.
        """
        # Constant after construction
        self._config = config
        self._link = link
        self._progress = progress
        self._files = files
        self._partition_counts = partition_counts
        self._has_led = link.resync == ASIDE
        # State
        self._broker: Broker | None = None
        self._known: set[uuid.UUID] = set()
        """Topics that the followed metadata has had since the start, with all of their partitions."""
        self._knows_node_id = False
        """Whether the leader's node.id was compared with that of this standby."""
        self._forgetting = asyncio.Lock()
        """Held from the look at the topics until those that are gone are forgotten."""

    @property
    def is_following(self) -> bool:
        """Whether the broker has started, so that its logs are open."""
        return self._broker is not None and self._broker.links is not None

    async def run(self) -> NoReturn:
        """Follow until the task is cancelled. Begins once the copy knows the source's cluster.

        Raises:
            CommandFailed: the broker cannot start or continue; the text says why.
        """
        config = replace(self._config, cluster_id=await self._cluster_id())
        self._check_node_id()
        broker = Broker(config, files=self._files, clock=SystemClock(), standby=self._link)
        self._broker = broker
        try:
            await broker.start()
        except (ListenError, StorageError) as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error
        while True:
            try:
                await asyncio.wait_for(broker.wait_failed(), LOOK_SECONDS)
            except TimeoutError:
                self._check_node_id()
                if self._progress.state is State.CURRENT:
                    await self.forget_gone()
                self._progress.mirrors_answered(self.facts())
                continue
            raise CommandFailed(EXIT_FAILED, broker.failure or "the broker has failed")

    async def _cluster_id(self) -> str:
        """Returns the source's cluster, once the broker may start.

        The first time the leader must have said its node.id. Later the broker starts also without the
        leader, because it may have to take over.
        """
        progress = self._progress
        while True:
            is_known = progress.leader_node_id is not None or self._has_node_id()
            if progress.cluster_id is not None and is_known:
                return progress.cluster_id
            await asyncio.sleep(LOOK_SECONDS / 4)

    def _has_node_id(self) -> bool:
        """Returns whether the directory has a node.id, which can no longer be changed."""
        return self._files.exists(join(self._config.metadata_directory, META_PROPERTIES))

    def _check_node_id(self) -> None:
        """Refuse the leader's node.id, as long as it can be changed.

        Clients know a broker by it. librdkafka 2.16 gives up the address of the old one, and then waits
        for it for ever if the new one has the same id.

        Raises:
            CommandFailed: it is the leader's.
        """
        node_id, leaders = self._config.node_id, self._progress.leader_node_id
        if self._knows_node_id or leaders is None:
            return
        self._knows_node_id = True
        if leaders != node_id:
            return
        text = (
            f"node.id {node_id} is also that of the broker at {self._progress.leader}, so clients may"
            " wait for that one for ever once this standby has taken over"
        )
        if not self._has_node_id():
            raise CommandFailed(EXIT_FAILED, f"{text}: set another node.id in --config")
        _log.warning("%s", text)

    async def close(self) -> None:
        """Stop the broker; its logs are closed and durable."""
        if self._broker is not None:
            await self._broker.stop()
            self._broker = None

    # ---------------------------------------------------------------- what people see

    def facts(self) -> MirrorsFacts:
        """Returns how far the mirrors are."""
        links, name = None if self._broker is None else self._broker.links, self._link.name
        totals = None if links is None else links.facts().get(name)
        if links is None or totals is None:
            return STARTING
        reason = links.reason_of(name)
        if not links.has_followed(name):
            reason = reason or NOT_ASKED
        return MirrorsFacts(
            partitions=sum(totals.partitions_by_state.values()),
            by_state=dict(totals.partitions_by_state),
            lag=sum(totals.lag_offsets.values()),
            reason=reason,
            unmirrored=_unmirrored(links, name),
        )

    def missing(self, *, waits: bool) -> list[str]:
        """Returns what the mirrors lack of the source, or may lack, as far as they know.

        Args:
            waits: whether the last records will be waited for, once the source is fenced.
        """
        assert self._broker is not None
        links, name = self._broker.replication, self._link.name
        reason = links.reason_of(name)
        if not links.has_followed(name):
            return [f"all topics: {reason or NOT_ASKED}", *self._unknown()]
        lag_max = LAG_OFFSETS_MAX if waits else 0
        missing = missing_at_promotion(self._mirrors(), reason, lag_max=lag_max)
        return [*missing, *_unmirrored(links, name)]

    def _unknown(self) -> list[str]:
        """Returns a sentence for each log, if the source was not asked since the start."""
        assert self._broker is not None
        return [
            unknown(log.topic_partition, log.high_watermark, "the standby has only started")
            for log in self._broker.topics.logs()
        ]

    def unsure(self) -> list[str]:
        """Returns a sentence for each mirror that is not copied now, however far it is."""
        assert self._broker is not None
        reason = self._broker.replication.reason_of(self._link.name)
        return missing_at_promotion(self._mirrors(), reason, lag_max=sys.maxsize)

    def ends(self) -> dict[SourceLog, Offset]:
        """Returns where the mirrors end, durably."""
        assert self._broker is not None
        ids = {topic.name: topic.id for topic in self._broker.topics.all()}
        return {
            SourceLog(ids[each.partition.topic], each.partition): Offset(each.synced_end)
            for each in self._mirrors()
            if each.partition.topic in ids
        }

    def highest_epoch(self) -> int:
        """Returns the highest leader epoch that some mirror's log has or leads with."""
        assert self._broker is not None
        logs = self._broker.topics.logs()
        return max((max(log.leader_epoch, log.epochs.latest) for log in logs), default=0)

    async def unknown_topics(self) -> list[MirroredTopic]:
        """Returns the topics that are mirrored, and that the followed metadata does not have."""
        assert self._broker is not None
        return [
            MirroredTopic(
                name=topic.name,
                id=topic_id_text(topic.id),
                partitions=len(topic.partitions),
                configs=without_own(topic.overrides),
            )
            for topic, count in await self._followed_counts(self._broker.topics.all())
            if not count
        ]

    def _mirrors(self) -> list[MirrorFacts]:
        links = None if self._broker is None else self._broker.links
        return [] if links is None else links.mirror_facts(self._link.name)

    async def forget_gone(self, *, is_final: bool = False) -> None:
        """Delete the topics that neither the source nor the followed metadata has any longer.

        A topic that the metadata never had, or not with all of its partitions, may be the last copy of
        what the primary of this directory has acknowledged: it is put aside.

        Args:
            is_final: whether the source is fenced, and the metadata have all of its entries. Else a
                topic may be newer than the metadata, and the source must also say that it is gone.
        """
        async with self._forgetting:
            if self._broker is not None:
                await self._forget_gone(self._broker, is_final=is_final)

    async def _forget_gone(self, broker: Broker, *, is_final: bool) -> None:
        topics = broker.topics.all()
        if self._has_led:
            unknown = [each for each in topics if each.id not in self._known]
            self._known |= {
                topic.id
                for topic, count in await self._followed_counts(unknown)
                if count >= len(topic.partitions)
            }
        gone, last_copies = list[Topic](), list[Topic]()
        suspects = topics if is_final else self._gone_at_the_source()
        for topic, count in await self._followed_counts(suspects):
            if self._has_led and topic.id not in self._known:
                last_copies.append(topic)
            elif not count:
                gone.append(topic)
        replication, name = broker.replication, self._link.name
        await replication.forget(name, gone, keeps_files=False)
        await replication.forget(name, last_copies, keeps_files=True)

    def _gone_at_the_source(self) -> list[Topic]:
        """Returns the topics that the source did not have, or had no more, at its last answers."""
        assert self._broker is not None
        replication, name = self._broker.replication, self._link.name
        if not replication.has_followed(name):
            return []
        failed = {
            each.partition.topic for each in self._mirrors() if each.state is MirrorState.FAILED
        }
        return [
            each
            for each in self._broker.topics.all()
            if each.name in failed or not replication.lists(name, each.name)
        ]

    async def _followed_counts(self, topics: Sequence[Topic]) -> list[tuple[Topic, int]]:
        """Returns each topic with its number of partitions in the followed metadata; 0 if not there."""
        counts = await self._partition_counts([(each.name, each.id) for each in topics])
        return list(zip(topics, counts, strict=True))


def _unmirrored(links: Replication, name: str) -> list[str]:
    """Returns a sentence for each topic that has no mirror here."""
    return [f"{topic}: not mirrored: {why}" for topic, why in links.unmirrored(name).items()]


def standby_link(name: str, leader: str, access: Access, *, has_led: bool) -> LinkSpec:
    """Returns the link of a standby.

    Args:
        name: the id by which the source knows the standby.
        leader: host:port of the source's internal listener.
        has_led: whether its directory was a primary's, so that its logs may have records of their own.
    """
    return LinkSpec(
        name=STANDBY_LINK,
        own_group=f"{STANDBY_LINK}.{name}",
        bootstrap=leader,
        compaction="on",
        resync=ASIDE if has_led else "auto",
        is_standby=True,
        own_access=access,
    )
