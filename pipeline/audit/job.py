"""Runs an audit, from its two sides to its report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.compact.client import Json
from pipeline.audit.audit import WITHIN, Table, audit, last_records, spans_frame, tables
from pipeline.audit.report import DigestReport, DigestRow, Report
from pipeline.audit.side import BrokerSide, LogSide, Side
from pipeline.audit.span import AuditOptions, Span, common_spans
from pipeline.source.record_hashes import HEADERS, hashed
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

DELETE_RETENTION_MS = 86_400_000
"""Kafka's default."""


def run_audit(
    session: SparkSession, original: Side, cleaned: Side, options: AuditOptions
) -> Report | DigestReport:
    """Compare two sides, at least one of which is a log. Raises CommandFailed."""
    if isinstance(cleaned, BrokerSide):
        assert not isinstance(original, BrokerSide)
        return compare_digests(session, original, cleaned, broker_is_cleaned=True)
    if isinstance(original, BrokerSide):
        return compare_digests(session, cleaned, original, broker_is_cleaned=False)
    return audit_logs(session, original, cleaned, options)


def audit_logs(
    session: SparkSession, original: LogSide, cleaned: LogSide, options: AuditOptions
) -> Report:
    """Compare two logs record by record. Raises CommandFailed."""
    # Ask the original first: records appended meanwhile are then beyond its end.
    before = original.offsets(session)
    after = cleaned.offsets(session)
    spans = common_spans(before, after, may_end_early=options.may_end_early)
    if not spans.common:
        raise CommandFailed(EXIT_FAILED, "the two logs have no partition in common")
    retention_ms = retention_of(session, cleaned, options)
    strategy = options.strategy or strategy_of(session, cleaned, original)
    found = audit(
        session,
        records_of(session, original, spans.common, strategy),
        records_of(session, cleaned, {each: after[each] for each in spans.common}, strategy),
        spans.common,
        strategy=strategy,
        horizon_ms=lambda: time.time_ns() // 1_000_000 - retention_ms,
        differences_max=options.differences_max,
    )
    return Report(
        original=original.name, cleaned=cleaned.name, strategy=strategy, spans=spans, found=found
    )


def retention_of(session: SparkSession, cleaned: LogSide, options: AuditOptions) -> int:
    """Returns the retention of tombstones in the cleaned log, in milliseconds."""
    if options.delete_retention_ms is not None:
        return options.delete_retention_ms
    told = cleaned.delete_retention_ms(session)
    return DELETE_RETENTION_MS if told is None else told


def strategy_of(session: SparkSession, *sides: LogSide) -> CompactionStrategy:
    """Returns the strategy of the first side that knows its own. Raises CommandFailed."""
    known = (side.strategy(session) for side in sides)
    return next((each for each in known if each is not None), BY_OFFSET)


def records_of(
    session: SparkSession, side: LogSide, offsets: Mapping[int, Span], strategy: CompactionStrategy
) -> DataFrame:
    """Returns a side's records. Raises CommandFailed if they lack the headers that rank them."""
    records = side.records(session, offsets)
    if strategy.ranking is Ranking.HEADER and HEADERS not in records.columns:
        raise CommandFailed(
            EXIT_FAILED,
            f"the records are ranked by {strategy}: leave out --option includeHeaders",
        )
    return records


def compare_digests(
    session: SparkSession, read: LogSide, broker: BrokerSide, *, broker_is_cleaned: bool
) -> DigestReport:
    """Compare a log that Spark reads with a broker's digest of its own. Raises CommandFailed."""
    offsets = read.offsets(session)
    told = broker.digests(offsets)
    spans = {
        partition: Span(start=digest["start_offset"], end=digest["end_offset"])
        for partition, digest in told.items()
    }
    for partition, span in spans.items():
        if span.start < offsets[partition].start:
            raise CommandFailed(
                EXIT_FAILED,
                f"partition {partition} of {broker.name} starts at offset {span.start}, of"
                f" {read.name} at {offsets[partition].start}: compare them record by record",
            )
    strategy = told_strategy(told.values())
    found = records_of(session, read, spans, strategy)
    records = within(session, hashed(found, strategy), spans)
    summed = tables(last_records(records))
    return DigestReport(
        tuple(
            row_of(partition, digest, summed.get(partition, Table()), broker_is_cleaned)
            for partition, digest in sorted(told.items())
        )
    )


def within(session: SparkSession, records: DataFrame, spans: Mapping[int, Span]) -> DataFrame:
    """Returns the records within these offsets."""
    bounds = spans_frame(session, spans)
    return records.join(bounds.hint("broadcast"), "partition").where(WITHIN)


def told_strategy(told: Iterable[Json]) -> CompactionStrategy:
    """Returns the strategy that a broker's digests name; earlier releases rank by offset.

    Raises:
        CommandFailed: it belongs to a later release, or was changed meanwhile.
    """
    (name, *others) = {digest.get("strategy", str(BY_OFFSET)) for digest in told}
    if others:
        raise CommandFailed(EXIT_FAILED, "compaction.strategy was changed meanwhile: try again")
    try:
        return CompactionStrategy.parse(name)
    except ValueError as error:
        raise CommandFailed(EXIT_FAILED, f"the broker's compaction.strategy: {error}") from error


def row_of(partition: int, told: Json, read: Table, broker_is_cleaned: bool) -> DigestRow:
    said = Table(keys=told["keys"], digest=int(told["digest"], 16))
    original, cleaned = (read, said) if broker_is_cleaned else (said, read)
    return DigestRow(
        partition=partition,
        start=told["start_offset"],
        end=told["end_offset"],
        original=original,
        cleaned=cleaned,
        cleaned_to=told["clean_offset"],
    )
