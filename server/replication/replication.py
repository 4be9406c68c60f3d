"""The links of this broker: loads, starts, changes and stops them. Sole owner of the set of links.

A link is durable in the cluster's metadata store before it starts, and gone from there before its end
is answered. Its mirrors are topics (`server/topics/mirrors.py`), which outlive a restart with their
link's name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict

from metrics.facts import LinkFacts
from server.client.errors import Misconfigured
from server.metadata.store import Delete, MetadataStore, Put
from server.replication.acl_sync import forgotten_acls
from server.replication.link import Link
from server.replication.link_spec import LINKS, BadLink, LinkSpec, altered_link, stored_link
from server.replication.mirror import Mirror, MirrorFacts
from server.replication.mirror_topics import MirrorTopics
from server.replication.promotion import missing_at_promotion
from server.replication.source_topics import SourcePartition
from server.runtime.sliced_json import Json, Rows
from server.topics.mirrors import without_own
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.replication")


class LinkRefused(Exception):
    """A request about links that cannot be done, in one sentence."""

    def __init__(self, message: str, missing: list[str] | None = None) -> None:
        super().__init__(message)
        self.missing = missing or []
        """What a promotion would lose, a sentence for each partition."""


class UnknownLink(LinkRefused):
    """There is no such link or mirror."""


@loop_thread
class Replication:
    """Runs the links."""

    __slots__ = (
        "_broken",
        "_finish_log",
        "_links",
        "_lock",
        "_make_link",
        "_mirrors",
        "_specs",
        "_standby",
        "_store",
        "_topics",
    )

    def __init__(
        self,
        store: MetadataStore,
        topics: Topics,
        make_link: Callable[[LinkSpec], Link],
        finish_log: Callable[[PartitionLog], Awaitable[None]],
        *,
        standby: LinkSpec | None = None,
    ) -> None:
        """
        Args:
            finish_log: makes a log that no link fills fit to be written by producers.
            standby: the link of a standby, which is the only one then; never stored.
        """
        # Constant after construction
        self._standby = standby
        self._store = store
        self._topics = topics
        self._mirrors = MirrorTopics(topics)
        self._make_link = make_link
        self._finish_log = finish_log
        self._lock = asyncio.Lock()
        """Held while the set of links changes."""
        # State
        self._specs: dict[str, LinkSpec] = {}
        self._links: dict[str, Link] = {}
        """The links that run; the others are in `_broken`."""
        self._broken: dict[str, str] = {}
        """Why a link cannot run, for example because a file of its properties is gone."""

    async def open(self) -> None:
        """Start the stored links. One that cannot run says so, and stops no other.

        A standby has its own link only: those that the cluster stores are the source's.
        """
        if self._standby is not None:
            self._start(self._standby)
            return
        for entry in (await self._store.range(LINKS)).entries:
            name = entry.key.removeprefix(LINKS)
            try:
                self._start(stored_link(name, entry.value))
            except BadLink as error:
                _log.error("%s", error)
                self._broken[name] = str(error)

    async def stop(self) -> None:
        """Stop all links; they start again with the broker."""
        await asyncio.gather(*(link.stop() for link in self._links.values()))

    # ---------------------------------------------------------------- changing

    async def create(self, spec: LinkSpec) -> None:
        """Store and start a link.

        Raises:
            LinkRefused: there is one of this name, or this broker is a standby.
            StorageError: the store failed.
        """
        async with self._lock:
            self._check_is_no_standby()
            if spec.name in self._specs or spec.name in self._broken:
                raise LinkRefused(
                    f"there is a link {spec.name}: delete it first, or choose another name"
                )
            await self._put(spec)
            self._start(spec)

    async def pause(self, name: str, *, is_paused: bool) -> None:
        """Pause or resume a link, durably. Resuming also retries what has failed, and starts a link that
        could not run.

        Raises:
            UnknownLink: there is none.
            LinkRefused: it cannot be read.
            StorageError: the store failed.
        """
        async with self._lock:
            spec = self._spec(name).paused(is_paused)
            await self._put(spec)
            self._specs[name] = spec
            if (link := self._links.get(name)) is not None:
                link.pause(is_paused=is_paused)
            elif not is_paused:
                self._start(spec)

    async def alter(self, name: str, content: bytes | str) -> None:
        """Change a link durably, while it runs.

        Args:
            content: the changes (`altered_link`).

        Raises:
            BadLink: the changes are wrong.
            UnknownLink: there is none.
            LinkRefused: it cannot be read.
            StorageError: the store failed.
        """
        async with self._lock:
            self._check_is_no_standby()
            spec = altered_link(self._spec(name), content)
            await self._put(spec)
            self._specs[name] = spec
            if (link := self._links.get(name)) is not None:
                link.alter(spec)

    async def resync(
        self, name: str, topic: str | None, partition: int | None, *, puts_aside: bool
    ) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
        """Copy failed partitions once more, beside their logs, which clients read until the copies are
        complete.

        Args:
            topic: a mirror of the link; None for all.
            partition: of this topic; None for all.
            puts_aside: keep the old logs in any case.

        Returns the partitions that have begun, and why others cannot.

        Raises:
            UnknownLink: there is no such link, mirror or partition.
            LinkRefused: none has begun.
        """
        async with self._lock:
            spec = self._spec(name)
            link = self._links.get(name)
            if link is None:
                raise LinkRefused(self._broken[name])
            if spec.is_paused:
                raise LinkRefused(f"link {name} is paused: kompakt replica resume {name} first")
            known = [] if topic is None else link.mirrors_of(topic)
            numbers = {each.log.topic_partition.partition for each in known}
            if topic is not None and not (numbers if partition is None else partition in numbers):
                what = topic if partition is None else f"{topic}-{partition}"
                raise UnknownLink(f"{what} is no mirror of link {name}")
            begun, refused = link.new_copies.begin(topic, partition, puts_aside=puts_aside)
            if not begun:
                raise _none_begun(name, refused)
            return begun, refused

    async def delete(self, name: str) -> None:
        """Delete a link without mirrors.

        Raises:
            UnknownLink: there is none.
            LinkRefused: it has mirrors.
            StorageError: the store failed.
        """
        async with self._lock:
            self._check_is_no_standby()
            if name not in self._broken:
                self._spec(name)
            self._check_has_no_mirrors(name)
            link = self._links.get(name)
            try:
                if link is not None:
                    await link.stop()
                # It may have created one before it stopped.
                self._check_has_no_mirrors(name)
                await self._store.txn((), [Delete(key=LINKS + name), forgotten_acls(name)])
            except BaseException:
                if link is not None:
                    self._start(link.spec)
                raise
            self._links.pop(name, None)
            self._specs.pop(name, None)
            self._broken.pop(name, None)

    def _check_has_no_mirrors(self, name: str) -> None:
        mirrors = self._mirrors.names_of(name)
        if mirrors:
            raise LinkRefused(
                f"link {name} has mirrors ({', '.join(mirrors[:10])}): promote them first, then they"
                " are ordinary topics and can be deleted (kompakt replica promote)"
            )

    async def promote(self, topic_name: str, *, is_forced: bool) -> list[str]:
        """Make a mirror an ordinary topic, with the source's policies.

        Returns what it lacks of the source, a sentence for each partition, and committed offsets of
        groups beyond its end, from which these cannot continue; only with `is_forced`.

        Raises:
            UnknownLink: it is no mirror.
            LinkRefused: it lacks records, or may lack some.
            StorageError: the store or the disk failed.
        """
        async with self._lock:
            self._check_is_no_standby()
            topic = self._topics.get(topic_name)
            if topic is None or not topic.config.is_mirror:
                raise UnknownLink(f"{topic_name} is no mirror")
            link = self._links.get(topic.config.mirror_link)
            missing = [f"{topic_name}: unknown, because its link does not run"]
            if link is not None:
                link.take(topic.logs())
                facts = [each.facts() for each in link.mirrors_of(topic_name)]
                missing = missing_at_promotion(facts, link.reason)
            if missing and not is_forced:
                raise LinkRefused(
                    f"{topic_name} lacks records of its source, or may lack some; --force promotes it"
                    " nevertheless",
                    missing,
                )
            if link is None:
                await self._finish(topic)
            nothing = nullcontext(list[str]())
            letting_go: AbstractAsyncContextManager[list[str]] = (
                link.letting_go(topic_name) if link is not None else nothing
            )
            async with letting_go as lowered:
                altered = await self._topics.alter(topic_name, _as_ordinary)
            if isinstance(altered, TopicRefused):
                raise LinkRefused(altered.message)
            missing += lowered
            _log.warning("promoted %s; lacking: %s", topic_name, "; ".join(missing) or "nothing")
            return missing

    async def _finish(self, topic: Topic) -> None:
        """Make the logs of a topic whose link does not run fit to be written by producers."""
        for log in topic.logs():
            await self._finish_log(log)

    async def forget(self, name: str, topics: Sequence[Topic], *, keeps_files: bool) -> None:
        """Delete mirrors that have no topic at the source, or another one than they had. Only for a
        standby, which knows that from the followed metadata.

        Args:
            keeps_files: put them aside, because they may be the last copies.

        Raises:
            StorageError: the store or the disk failed.
        """
        if not topics:
            return
        async with self._lock:
            link = self._links[name]
            for each in topics:
                found = self._topics.get(each.name)
                if found is None or found.id != each.id:
                    continue  # It is gone already, and its name may be another topic's.
                async with link.dropping(each.name):
                    delete = self._topics.put_aside if keeps_files else self._topics.delete
                    refused = await delete(found)
                if refused is None:
                    verb = "put aside" if keeps_files else "deleted"
                    text = (
                        "link %s: %s %s, which the source does not have with all of its partitions"
                    )
                    _log.warning(text, name, verb, each.name)
            link.look_again()

    # ---------------------------------------------------------------- showing

    def reason_of(self, name: str) -> str:
        """Returns why the source of a link cannot be asked; empty if it answers."""
        link = self._links.get(name)
        return self._broken.get(name, "there is none") if link is None else link.reason

    def has_followed(self, name: str) -> bool:
        """Returns whether the source of a link has said since the start which topics it has."""
        link = self._links.get(name)
        return link is not None and link.has_followed

    def unmirrored(self, name: str) -> Mapping[str, str]:
        """Returns why this broker does not mirror a topic of a link that runs, by its name."""
        return self._links[name].unmirrored

    def lists(self, name: str, topic: str) -> bool:
        """Returns whether the source of a link that runs had such a topic when it was last asked."""
        return self._links[name].source.lists(topic)

    def mirror_facts(self, name: str) -> list[MirrorFacts]:
        """Returns the state of each partition of a link that runs."""
        link = self._links.get(name)
        return [] if link is None else [each.facts() for each in link.mirrors()]

    def sources_of(self, topic_name: str) -> tuple[str, list[tuple[PartitionLog, SourcePartition]]]:
        """Returns a mirror's link, and the log of each partition with where its source can be read.

        Raises:
            UnknownLink: it is no mirror.
            LinkRefused: its link does not run, or the source does not answer.
        """
        topic = self._topics.get(topic_name)
        if topic is None or not topic.config.is_mirror:
            raise UnknownLink(f"{topic_name} is no mirror")
        name = topic.config.mirror_link
        link = self._links.get(name)
        reason = self.reason_of(name)
        if link is None or reason:
            raise LinkRefused(f"link {name} does not follow its source: {reason}")
        found = [(each.log, link.source.partition_of(each)) for each in link.mirrors_of(topic_name)]
        known = [(log, source) for log, source in found if source is not None]
        if not known or len(known) < len(found):
            raise LinkRefused(
                f"the source does not say now who leads all partitions of {topic_name}, or it has"
                f" another topic of this name: kompakt replica status {name}"
            )
        return name, known

    def shown(self) -> list[Json]:
        """Returns all links, for people and programs. The partitions of each are built when they are
        read."""
        return [self._shown(name) for name in sorted({*self._specs, *self._broken})]

    def shown_one(self, name: str) -> Json:
        """Returns one link, like `shown`. Raises UnknownLink."""
        if name not in self._broken:
            self._spec(name)
        return self._shown(name)

    async def shown_whole(self, name: str) -> Json:
        """Returns one link, with the logs that resyncs have put aside. Raises UnknownLink."""
        shown, link = self.shown_one(name), self._links.get(name)
        if link is None:
            return shown
        aside = await link.new_copies.put_aside()

        def row(mirror: Mirror) -> Json:
            logs = aside.get(mirror.log.topic_partition, ())
            return {**_row(mirror), "put_aside": [asdict(log) for log in logs]}

        return {**shown, "partitions": Rows(row, link.mirrors())}

    def _shown(self, name: str) -> Json:
        link, spec = self._links.get(name), self._specs.get(name)
        shown = {"name": name} if spec is None else spec.shown()
        if link is None:
            reason = self._broken.get(name, "")
            return {
                **shown,
                "reason": reason,
                "problems": {},
                "acls_here": None,
                "group_offsets": None,
                "partitions": [],
            }
        return {
            **shown,
            "reason": link.reason,
            "problems": dict(link.problems),
            "acls_here": asdict(link.acl_facts()) if link.spec.takes_acls else None,
            "group_offsets": asdict(link.group_facts()) if link.spec.groups else None,
            "partitions": Rows(_row, link.mirrors()),
        }

    @any_thread
    def facts(self) -> dict[str, LinkFacts]:
        """Returns what metrics show about each link that runs."""
        return {name: link.totals() for name, link in list(self._links.items())}

    # ---------------------------------------------------------------- the rest

    def _start(self, spec: LinkSpec) -> None:
        self._specs[spec.name] = spec
        try:
            link = self._make_link(spec)
        except Misconfigured as error:
            _log.error("link %s: %s", spec.name, error)
            self._broken[spec.name] = str(error)
            return
        self._links[spec.name] = link
        self._broken.pop(spec.name, None)
        link.start()

    def _spec(self, name: str) -> LinkSpec:
        spec = self._specs.get(name)
        if spec is None and name in self._broken:
            raise LinkRefused(self._broken[name])
        if spec is None:
            raise UnknownLink(f"there is no link {name}")
        return spec

    def _check_is_no_standby(self) -> None:
        if self._standby is not None:
            raise LinkRefused(
                f"this broker is a standby of {self._standby.bootstrap}: kompakt standby promote makes"
                " it an ordinary broker"
            )

    async def _put(self, spec: LinkSpec) -> None:
        if spec.is_standby:
            return  # Paused until the next start.
        await self._store.txn((), [Put(key=LINKS + spec.name, value=spec.stored())])


def _row(mirror: Mirror) -> Json:
    return mirror.facts().as_json()


def _none_begun(name: str, refused: Mapping[TopicPartition, str]) -> LinkRefused:
    sentences = [f"{partition}: {reason}" for partition, reason in refused.items()]
    if not sentences:
        return LinkRefused(
            f"no partition of link {name} has failed: there is nothing to copy again"
        )
    if len(sentences) == 1:
        return LinkRefused(sentences[0])
    return LinkRefused(f"no failed partition of link {name} can be copied once more", sentences)


def _as_ordinary(overrides: Mapping[str, str], _: LogConfig) -> dict[str, str]:
    return without_own(overrides)
