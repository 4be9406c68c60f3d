"""From topics to a table of last values: whole, or what is new.

The table is its own checkpoint: it says which offsets it holds, and each run of a stream goes on
from exactly there. Spark's checkpoint lives as long as the query, so nothing can go out of step
with the table: a run that was killed anywhere, a batch before the first stream, a table that was
restored are all the same case.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pipeline.cut import Cut, refuse_other_topics, refuse_taken_back, start_of_stream
from pipeline.kafka_offsets import ask_offsets
from pipeline.kafka_source import KafkaSource
from pipeline.lag import committing
from pipeline.latest import COLUMNS, SCHEMA, latest, offsets_after, unknown_to
from pipeline.payload import rows_of
from pipeline.payload_options import Payload
from pipeline.table import Table
from server.command_end import complain


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a stream goes on."""

    every: str | None = None
    """An interval as `10 seconds`, until it is stopped; None: what is there now, then it ends."""
    offsets_per_batch: int | None = None
    group: str | None = None
    """The consumer group that its progress is committed to."""


def write_whole(session: SparkSession, source: KafkaSource, table: Table, payload: Payload) -> Cut:
    """Read the topics up to their present ends and make that the table; what it holds then.

    Raises:
        TableRefused: a topic does not exist, the place is taken by something else, or the values
            do not fit the schema.
    """
    held = table.held()
    if held is not None:
        refuse_other_topics(held, source.topics)
    cut = ask_offsets(session, source).cut()
    records = session.read.format("kafka").options(**source.up_to(cut.offsets)).load()
    last = latest(records.select(*COLUMNS)).persist()
    try:
        table.replace(rows_of(last, payload, None), cut)
    finally:
        last.unpersist()
    return cut


def follow(
    session: SparkSession, source: KafkaSource, table: Table, payload: Payload, pace: Pace
) -> Cut:
    """Merge what is new into the table, once or until it is stopped; what it holds then.

    Raises:
        TableRefused: as `write_whole`, and where the topics no longer go on from the table's cut.
    """
    now = ask_offsets(session, source)
    table.confirm()
    held = table.held() or Cut({}, {})
    begin = start_of_stream(held, now, fail_on_data_loss=source.fails_on_data_loss)
    options = source.on_from(begin.offsets, pace.offsets_per_batch)
    records = session.readStream.format("kafka").options(**options).load().select(*COLUMNS)
    with progress_shown(session, source, pace.group, begin):
        merge_stream(records, table, payload, begin, every=pace.every)
    reached = table.held()
    if reached is None:
        table.replace(rows_of(session.createDataFrame([], SCHEMA), payload, None), begin)
    return reached or begin


def progress_shown(
    session: SparkSession, source: KafkaSource, group: str | None, begin: Cut
) -> AbstractContextManager[None]:
    """Within, a group's offsets say how far the stream is, from what the table holds already."""
    if group is None:
        return nullcontext()
    held = {(topic, partition): offset for topic, partition, offset in begin.rows()}
    return committing(session, group, source.all_options(), held=held, say=complain)


def merge_stream(
    records: DataFrame, table: Table, payload: Payload, begin: Cut, *, every: str | None
) -> None:
    """Merge micro-batches until the stream ends. Raises what stopped it."""
    failures: list[Exception] = []
    reached: Cut | None = None

    def take(batch: DataFrame, _: int) -> None:
        nonlocal reached
        try:
            reached = bring_in(batch, table, payload, begin, reached)
        except Exception as failure:
            failures.append(failure)
            raise

    trigger = {"availableNow": True} if every is None else {"processingTime": every}
    query = records.writeStream.foreachBatch(take).trigger(**trigger).start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()


def bring_in(
    batch: DataFrame, table: Table, payload: Payload, begin: Cut, reached: Cut | None = None
) -> Cut | None:
    """Bring one micro-batch into the table, once, however often it comes; the new `reached`.

    `begin` is where the stream began: what a table holds that is not there yet. `reached` is what
    this stream has brought it to, if anything; another one may have brought it further.

    Raises:
        TableRefused: the table holds less than that, or the rows do not fit it.
    """
    held = table.held()
    refuse_taken_back(held, reached)
    known = begin if held is None else begin.advanced(held.offsets)
    fresh = unknown_to(known, batch).persist()
    try:
        cut = known.advanced(offsets_after(fresh))
        if cut == known:
            return reached
        if held is None:
            table.replace(rows_of(latest(fresh), payload, None), cut)
        else:
            table.merge(rows_of(latest(fresh), payload, table.columns()), cut)
        return cut
    finally:
        fresh.unpersist()
