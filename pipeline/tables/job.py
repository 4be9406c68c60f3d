"""Writes topics to a table of last values: completely, or only the new records.

The table is its own checkpoint: it stores which offsets it holds, and each run of a stream continues
from exactly there. Spark's checkpoint lives only as long as the query, so nothing can disagree with
the table: a run that was killed anywhere, a batch before the first stream and a restored table are all
the same case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cli.base.command_end import complain
from pipeline.offsets.cut import (
    REWRITE_HINT,
    Cut,
    TableRefused,
    refuse_other_topics,
    refuse_taken_back,
    start_of_stream,
)
from pipeline.offsets.kafka_offsets import ask_offsets
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.lag import committing
from pipeline.offsets.topic_settings import topic_strategies
from pipeline.source.ranks import versions_by_topic
from pipeline.spark.persisted import persisted
from pipeline.tables.avro_fields import refuse_defaults
from pipeline.tables.dead_letters import DeadLetters
from pipeline.tables.events.gaps import gaps, with_gaps
from pipeline.tables.events.truncations import (
    truncations_in,
    with_truncated_keys,
    without_truncations,
)
from pipeline.tables.events.unavailable_values import with_available_values
from pipeline.tables.formats.table import Table, Upkeep
from pipeline.tables.keys import having_keys
from pipeline.tables.latest import (
    COLUMNS,
    SCHEMA,
    becoming_rows,
    ends_and_count,
    latest,
    not_held_by,
    records_of,
)
from pipeline.tables.payload import dead_letters_from, parsed_of, rows_from, rows_of
from pipeline.tables.payload_options import Payload
from storage.formats.compaction_strategy import CompactionStrategy, Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a stream."""

    every: str | None = None
    """Interval such as `10 seconds`, until the stream is stopped; None: read current records, end."""
    offsets_per_batch: int | None = None
    group: str | None = None
    """The consumer group to which progress is committed."""
    upkeep: Upkeep | None = None
    """When small files are rewritten; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a job has done."""

    cut: Cut
    """The offsets that the table holds."""
    records: int = 0
    """Read, superseded ones among them."""
    micro_batches: int = 0


def write_whole(
    session: SparkSession,
    source: KafkaSource,
    table: Table,
    payload: Payload,
    dead_letters: DeadLetters | None = None,
) -> Run:
    """Read the topics up to their current ends and write that as the table.

    Raises:
        TableRefused: a topic does not exist, the path holds other data, or the values do not fit the
            schema.
    """
    held = table.held()
    if held is not None:
        refuse_other_topics(held, source.topics)
    cut = ask_offsets(session, source).cut()
    records = ranked_records(session, source, cut)
    events = truncations_in(records, payload, cut)
    keyed = having_keys(without_truncations(records, events), payload)
    with persisted(latest(keyed, counted=True)) as last:
        parsed = with_truncated_keys(parsed_of(last, payload, None), events, None, payload)
        set_aside(parsed, dead_letters)
        table.replace(rows_from(parsed, payload), cut)
        return Run(cut=cut, records=records_of(last), micro_batches=1)


def set_aside(parsed: DataFrame, dead_letters: DeadLetters | None) -> None:
    """Add the records that could not be parsed to the dead letters, if the user wants that.

    Raises:
        TableRefused: as `DeadLetters.add`.
    """
    if dead_letters is not None:
        dead_letters.add(dead_letters_from(parsed))


def ranked_records(session: SparkSession, source: KafkaSource, cut: Cut) -> DataFrame:
    """Returns the records up to a cut, with their versions if one of the topics ranks by them."""
    strategies = topic_strategies(session, source)
    if any(each.ranking is Ranking.HEADER for each in strategies.values()):
        source = source.with_headers()
    records = session.read.format("kafka").options(**source.up_to(cut.offsets)).load()
    return records.select(*COLUMNS, *versions_by_topic(strategies))


def follow(
    session: SparkSession,
    source: KafkaSource,
    table: Table,
    payload: Payload,
    pace: Pace,
    dead_letters: DeadLetters | None = None,
) -> Run:
    """Merge new records into the table, once or until it is stopped.

    Raises:
        TableRefused: as `write_whole`, the topics no longer continue from the table's cut, or one of
            them ranks its records by versions.
    """
    now = ask_offsets(session, source)
    refuse_versions(topic_strategies(session, source))
    table.confirm()
    held = table.held() or Cut({}, {})
    begin = start_of_stream(held, now, fail_on_data_loss=source.fails_on_data_loss)
    options = source.stream_from(begin.offsets, pace.offsets_per_batch)
    records = session.readStream.format("kafka").options(**options).load().select(*COLUMNS)
    with progress_shown(session, source, pace.group, begin):
        done = merge_stream(records, table, payload, begin, dead_letters, pace)
    reached = table.held()
    if reached is None:
        table.replace(rows_of(session.createDataFrame([], SCHEMA), payload, None), begin)
    return replace(done, cut=reached or begin)


def offsets_behind(session: SparkSession, source: KafkaSource, cut: Cut) -> int | None:
    """Returns how far a table is behind the topics now; None if the broker does not answer."""
    try:
        return ask_offsets(session, source).behind(cut)
    except TableRefused:
        return None


def refuse_versions(strategies: Mapping[str, CompactionStrategy]) -> None:
    """Raises TableRefused if records of a topic have versions.

    A table stores neither the versions of its rows nor those of deleted keys, so a merge could not
    compare them with new records'.
    """
    for topic, strategy in strategies.items():
        if strategy.has_versions:
            raise TableRefused(
                f"{topic} has compaction.strategy={strategy.ranking.value}: a stream cannot compare new"
                f" records with the versions of earlier ones, which a table lacks; {REWRITE_HINT}"
            )


def progress_shown(
    session: SparkSession, source: KafkaSource, group: str | None, begin: Cut
) -> AbstractContextManager[None]:
    """Commit the stream's progress to a group within this context, starting with the table's cut."""
    if group is None:
        return nullcontext()
    held = {(topic, partition): offset for topic, partition, offset in begin.rows()}
    return committing(session, group, source.all_options(), held=held, say=complain)


def merge_stream(
    records: DataFrame,
    table: Table,
    payload: Payload,
    begin: Cut,
    dead_letters: DeadLetters | None,
    pace: Pace,
) -> Run:
    """Merge micro-batches until the stream ends. Raises the error that stopped it."""
    failures: list[Exception] = []
    reached: Cut | None = None
    done = Run(cut=begin)
    files: int | None = None

    def take(batch: DataFrame, _: int) -> None:
        nonlocal reached, done, files
        try:
            reached, count = bring_in(batch, table, payload, begin, reached, dead_letters)
            done = replace(
                done, records=done.records + count, micro_batches=done.micro_batches + bool(count)
            )
            if count and pace.upkeep is not None:
                files = keep_up(table, pace.upkeep, files)
        except Exception as failure:
            failures.append(failure)
            raise

    trigger = {"availableNow": True} if pace.every is None else {"processingTime": pace.every}
    query = records.writeStream.foreachBatch(take).trigger(**trigger).start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()
    return done


def keep_up(table: Table, upkeep: Upkeep, files_before: int | None) -> int | None:
    """Rewrite the table's small files if it has too many. Returns how many files the last rewrite left.

    If another program wrote the table at the same moment, the next micro-batch tries again.
    """
    if not upkeep.is_due(table.size(), files_before):
        return files_before
    try:
        table.compact(upkeep.retain_hours)
    except TableRefused as refused:
        complain(f"the table's small files stay for now: {refused}")
        return files_before
    return table.size().files


def bring_in(
    batch: DataFrame,
    table: Table,
    payload: Payload,
    begin: Cut,
    reached: Cut | None = None,
    dead_letters: DeadLetters | None = None,
) -> tuple[Cut | None, int]:
    """Merge one micro-batch into the table, once even if it is repeated.

    Returns the new `reached`, and how many records the table had not held before.

    `begin` is the stream's start, which counts as the cut of a table, or of a partition in it, that
    does not exist yet. `reached` is the cut up to which this stream has written, if at all; another
    stream may have written more.

    Raises:
        TableRefused: the table holds less than `reached`, or the rows do not fit it.
    """
    held = table.held()
    refuse_taken_back(held, reached)
    known = begin if held is None else begin.advanced(held.offsets)
    with persisted(not_held_by(known, batch)) as fresh:
        ends, count = ends_and_count(fresh)
        cut = known.advanced(ends)
        if cut == known:
            return reached, 0
        if payload.history and reached is None:
            report_gaps(fresh, known)
        events = truncations_in(fresh, payload, cut)
        records = without_truncations(with_gaps(fresh, known) if payload.fills else fresh, events)
        becoming = becoming_rows(
            having_keys(records, payload), all_of_a_key=payload.reads_all_of_a_key
        )
        with persisted(becoming) as last:
            before = None if held is None else table.read()
            parsed = parsed_of(last, payload, None if before is None else before.schema)
            if events or payload.fills:
                fitting = None if before is None else table.fitting(rows_from(parsed, payload))
                parsed = with_truncated_keys(parsed, events, fitting, payload)
                if payload.fills:
                    parsed = with_available_values(parsed, fitting, payload.key_column)
            rows = rows_from(parsed, payload)
            if before is not None:
                refuse_defaults(before.columns, rows.columns, payload)
            set_aside(parsed, dead_letters)
            write = table.replace if before is None else table.merge
            write(rows, cut)
        return cut, count


def report_gaps(fresh: DataFrame, known: Cut) -> None:
    """Say from which offsets on a history has every value. `fresh` are the first records of a run."""
    for topic, partition, since, at in gaps(fresh, known):
        complain(
            f"{topic}-{partition}: from offset {since} on ({at} UTC) the history has every value; before"
            " it, there are offsets without a record: values that were compacted away, or markers of"
            " transactions"
        )
