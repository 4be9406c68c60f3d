"""The sides of an audit, in their command line forms.

HOST:PORT/TOPIC             a topic of a broker, read through Spark's Kafka source
FOLDER                      segment files: a topic's folder or a partition's, of a backup or in use
http://HOST:PORT/TOPIC      a broker's digest of its own log (`POST .../digest`): no data moves
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.compact.client import CompactionClient, Json, connected
from pipeline.audit.span import Span
from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.source.topic_strategy import strategies_in
from storage.files.errors import StorageError
from storage.files.local_files import ReadOnlyFileSystem
from storage.formats.compaction_strategy import CompactionStrategy
from storage.log.on_disk import LogOnDisk, look_at_log
from storage.verify.verify import find_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = re.compile(r"(?P<servers>[^/\s]+:\d+(?:,[^/\s]+:\d+)*)/(?P<topic>[^/\s]+)")
BROKER = re.compile(r"(?P<url>https?://[^/\s]+)/(?P<topic>[^/\s]+)")
COMMITTED = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}


class LogSide(Protocol):
    """A side whose records Spark reads."""

    @property
    def name(self) -> str: ...
    def offsets(self, session: SparkSession) -> dict[int, Span]:
        """Returns, for each partition, the offsets between which its records exist and are stable now.

        Raises:
            CommandFailed: it cannot be read.
        """

    def records(self, session: SparkSession, offsets: Mapping[int, Span]) -> DataFrame:
        """Returns the committed records within these offsets, with the Kafka source's columns."""

    def delete_retention_ms(self, session: SparkSession) -> int | None:
        """Returns the retention time of its tombstones; None if unknown."""

    def strategy(self, session: SparkSession) -> CompactionStrategy | None:
        """Returns how its records of a key are ranked; None if unknown.

        Raises:
            CommandFailed: it has a strategy, but it cannot be determined.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSide:
    """A topic of a broker."""

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return f"{self.bootstrap_servers}/{self.topic}"

    def offsets(self, session: SparkSession) -> dict[int, Span]:
        from pipeline.offsets.kafka_offsets import ask_offsets

        try:
            asked = ask_offsets(session, self._source())
        except TableRefused as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error
        ends = asked.end[self.topic]
        return {
            partition: Span(start=start, end=ends[partition])
            for partition, start in asked.first[self.topic].items()
        }

    def records(self, session: SparkSession, offsets: Mapping[int, Span]) -> DataFrame:
        ends = {self.topic: {partition: span.end for partition, span in offsets.items()}}
        options = self._source().up_to(ends)
        return session.read.format("kafka").options(**options).load()

    def delete_retention_ms(self, session: SparkSession) -> int | None:
        from pipeline.offsets.topic_settings import topic_setting

        text = topic_setting(session, self._source(), self.topic, "delete.retention.ms")
        return None if text is None else int(text)

    def strategy(self, session: SparkSession) -> CompactionStrategy:
        from pipeline.offsets.topic_settings import topic_strategies

        try:
            return topic_strategies(session, self._source())[self.topic]
        except TableRefused as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error

    def _source(self) -> KafkaSource:
        return KafkaSource(
            bootstrap_servers=self.bootstrap_servers,
            topics=(self.topic,),
            options={**COMMITTED, **self.options},
        )


@dataclass(frozen=True, slots=True)
class FolderSide:
    """Segment files of one topic."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def offsets(self, session: SparkSession) -> dict[int, Span]:
        return {
            log.identity.topic_partition.partition: Span(
                start=log.log_start_offset, end=log.last_stable_offset
            )
            for log in self._logs()
        }

    def records(self, session: SparkSession, offsets: Mapping[int, Span]) -> DataFrame:
        from pipeline.source.segment_source import register

        register(session)
        topic = next(iter(self._logs())).identity.topic_partition.topic
        numbers = sorted(offsets)
        ends = {str(number): offsets[number].end for number in numbers}
        options = {
            **COMMITTED,
            "assign": json.dumps({topic: numbers}),
            "endingOffsets": json.dumps({topic: ends}),
        }
        return session.read.format("kompakt").options(**options).load(str(self.path))

    def delete_retention_ms(self, session: SparkSession) -> int | None:
        return None

    def strategy(self, session: SparkSession) -> CompactionStrategy | None:
        """Returns the one that its key sidecars have; a topic's settings are not in its folder."""
        found = strategies_in(ReadOnlyFileSystem(), self._logs())
        if len(found) > 1:
            names = " and ".join(map(str, found))
            raise CommandFailed(
                EXIT_FAILED, f"{self.path} has key sidecars by {names}: give its --strategy"
            )
        return next(iter(found), None)

    def _logs(self) -> list[LogOnDisk]:
        fs = ReadOnlyFileSystem()
        try:
            found = find_logs(fs, str(self.path.absolute()))
            looked_at = [look_at_log(fs, each) for each in found.logs] if found else []
        except StorageError as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error
        logs = [log for log in looked_at if log is not None]
        topics = sorted({log.identity.topic_partition.topic for log in logs})
        if len(topics) != 1:
            held = f"holds {', '.join(topics)}" if topics else "holds no log"
            raise CommandFailed(
                EXIT_FAILED, f"{self.path} {held}: name the folder of one topic or partition"
            )
        return logs


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSide:
    """A broker that computes its own digest."""

    url: str
    topic: str

    @property
    def name(self) -> str:
        return f"{self.url}/{self.topic}"

    def digests(self, offsets: Mapping[int, Span]) -> dict[int, Json]:
        """Returns the broker's digest of each partition up to these ends. Raises CommandFailed."""
        return asyncio.run(self._digests(offsets))

    async def _digests(self, offsets: Mapping[int, Span]) -> dict[int, Json]:
        async with connected(self.url) as client:
            return {
                partition: await self._digest(client, partition, span.end)
                for partition, span in sorted(offsets.items())
            }

    async def _digest(self, client: CompactionClient, partition: int, end: int) -> Json:
        where = f"/topics/{self.topic}/partitions/{partition}/digest"
        job = await client.call("POST", where, {"end_offset": str(end)})
        try:
            job = await client.finished(job)
        except asyncio.CancelledError:
            await client.call("DELETE", f"/jobs/{job['id']}")
            raise
        (part,) = job["partitions"]
        if part["error"] is not None:
            raise CommandFailed(EXIT_FAILED, f"{self.topic}-{partition}: {part['error']}")
        found: Json = part["digest"]
        return found


Side: TypeAlias = TopicSide | FolderSide | BrokerSide


def parse_sides(original: str, cleaned: str, options: Mapping[str, str]) -> tuple[Side, Side]:
    """Parse both sides. Raises CommandFailed as `parse_side`."""
    sides = parse_side(original, options), parse_side(cleaned, options)
    if all(isinstance(side, BrokerSide) for side in sides):
        raise CommandFailed(
            EXIT_USAGE,
            "both sides are brokers' digests, which need no Spark: compare the output of"
            " `kompakt compact digest --url` for each",
        )
    return sides


def parse_side(text: str, options: Mapping[str, str]) -> Side:
    """Parse one side.

    Args:
        options: for Spark's Kafka source, if the side is a topic.

    Raises:
        CommandFailed: it has none of the three forms.
    """
    broker, topic = BROKER.fullmatch(text), TOPIC.fullmatch(text)
    if broker is not None:
        return BrokerSide(url=broker["url"], topic=broker["topic"])
    if topic is not None:
        return TopicSide(bootstrap_servers=topic["servers"], topic=topic["topic"], options=options)
    if Path(text).is_dir():
        return FolderSide(Path(text))
    raise CommandFailed(
        EXIT_USAGE,
        f"{text} is no folder, no HOST:PORT/TOPIC and no http://HOST:PORT/TOPIC",
    )
