"""Looks at a log for erasures: what prevents a pass over it, and how far one could reach."""

from __future__ import annotations

from cleaner.explain.explain import policy_remedy
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.paused import CleaningPaused
from cleaner.pool.pool import CleanerPool
from cleaner.pool.status import PoolStatus, Task
from cleaner.rules.fence import Fence
from cleaner.rules.hold import Hold, HoldOf
from cleaner.rules.pick import Blocker, assess
from server.erasure.needs import Holder, LogFacts
from storage.formats.manifest import UNKNOWN
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
class Looks:
    """Takes the facts of logs, each once in a round of looks."""

    __slots__ = ("_facts", "_hold_of", "_now_ms", "_pool", "_status")

    def __init__(self, pool: CleanerPool, hold_of: HoldOf, status: PoolStatus, now_ms: int) -> None:
        self._pool = pool
        self._hold_of = hold_of
        self._status = status
        self._now_ms = now_ms
        self._facts: dict[TopicPartition, LogFacts] = {}

    def facts_of(self, log: PartitionLog) -> LogFacts:
        """Returns the facts of a log. Raises StorageError if its open transactions cannot be read."""
        partition = log.topic_partition
        if partition not in self._facts:
            self._facts[partition] = self._look(log)
        return self._facts[partition]

    def _look(self, log: PartitionLog) -> LogFacts:
        fences = self._pool.assess(log).known_fences
        return log_facts(
            log,
            obstacle=self._obstacle(log),
            hold=self._hold_of(log),
            now_ms=self._now_ms,
            fence=fences[0] if fences else None,
        )

    def _obstacle(self, log: PartitionLog) -> Holder | None:
        partition = log.topic_partition
        number = partition.partition
        if log.config.is_mirror:
            return Holder(
                partition=number,
                text=f"{partition.topic} has become a mirror of link {log.config.mirror_link}",
                remedy="erase the key at its source",
            )
        try:
            self._pool.check_may_clean(log)
        except CleaningPaused as paused:
            scope = "" if "everything" in str(paused) else f" {partition.topic}"
            return Holder(
                partition=number, text=str(paused), remedy=f"kompakt compact resume{scope}"
            )
        except ValueError as refused:
            return Holder(
                partition=number,
                text=str(refused),
                remedy=policy_remedy(partition.topic, log.config),
            )
        except CleaningAborted as reason:
            return Holder(partition=number, text=str(reason), remedy="start the broker again")
        running = self._status.running_over(partition)
        if running is not None and running.task is Task.LEASE:
            return Holder(
                partition=number,
                text=f"another process cleans {partition} under a lease",
                remedy="wait until its job ends",
            )
        return None


def log_facts(
    log: PartitionLog,
    *,
    obstacle: Holder | None,
    hold: Hold,
    now_ms: int,
    fence: Fence | None = None,
) -> LogFacts:
    """Returns the facts of a log; on the loop's thread, where no append can intervene.

    Args:
        fence: the first one that the last pass has found.

    Raises StorageError if its open transactions cannot be read.
    """
    view = log.cleaning_view(as_if_rolled=True)
    bounds = assess(view, log.config, now_ms, requested=True).bounds
    has_lag = bounds.limited_by is Blocker.MIN_LAG
    return LogFacts(
        name=str(log.topic_partition),
        partition=log.topic_partition.partition,
        obstacle=obstacle,
        clean_offset=view.clean_offset,
        first_uncleanable_offset=bounds.first_uncleanable_offset,
        limited_by=bounds.limited_by,
        limited_until_ms=(
            _old_enough_ms(log, bounds.first_uncleanable_offset) if has_lag else None
        ),
        log_end_offset=view.log_end_offset,
        fence=fence,
        has_versions=log.config.strategy.has_versions,
        hold=hold,
        delete_retention_ms=log.config.delete_retention_ms,
    )


def failed(partition: TopicPartition, failure: str) -> Holder:
    """Returns the holder of a partition whose last pass or proof failed, until the next attempt."""
    return Holder(
        partition=partition.partition,
        text=f"the last attempt at {partition} failed: {failure}",
        remedy=f"the broker tries again by itself; kompakt compact explain {partition}",
    )


def offline(name: str, partition: int, reason: str) -> Holder:
    """Returns the holder of a partition that is out of service."""
    return Holder(
        partition=partition,
        text=f"{name} is offline: {reason}",
        remedy="repair its disk and start the broker again",
    )


def other_secret(name: str, topic: str, partition: int) -> Holder:
    """Returns the holder of a partition whose log directory has another secret than at the request."""
    return Holder(
        partition=partition,
        text=f"the key cannot be recognised in {name}: its log directory has another hash.key than at"
        " the request",
        remedy=f"erase the key of {topic} again: kompakt erase",
    )


def still_there(log: PartitionLog, offset: int) -> Holder:
    """Returns the holder that a record of the key is left although nothing prevents its removal."""
    partition = log.topic_partition
    text = f"a record of the key is left at offset {offset} of {partition}"
    remedy = (
        f"erase the key of {partition.topic} again: kompakt erase;"
        f" kompakt compact explain {partition} --key shows its records"
    )
    if offset < log.log_start_offset:
        text += (
            f", below the log's start {log.log_start_offset}, in a segment that reaches above it"
        )
        remedy = "it goes when the start has passed its segment"
    elif log.config.strategy.has_versions:
        text += f"; it may outrank the tombstone by compaction.strategy={log.config.strategy}"
    return Holder(partition=partition.partition, text=text, remedy=remedy)


def put_back(log: PartitionLog, offset: int) -> Holder:
    """Returns the holder that a log has lost its end, and so the tombstone."""
    partition = log.topic_partition
    return Holder(
        partition=partition.partition,
        text=f"{partition} ends at offset {log.log_end_offset}, below {offset}, where the key was"
        " erased: an older state of its files was put back",
        remedy=f"erase the key of {partition.topic} again: kompakt erase",
    )


def _old_enough_ms(log: PartitionLog, offset: int) -> int | None:
    """Returns when the segment at an offset is older than min.compaction.lag.ms."""
    segment = next((each for each in log.segments if each.base_offset == offset), None)
    if segment is None or segment is log.segments[-1]:
        return None  # Appends go to the active segment, and make it younger.
    appended_ms = segment.last_append_ms
    appended_ms = segment.created_ms if appended_ms == UNKNOWN else appended_ms
    return appended_ms + log.config.min_compaction_lag_ms
