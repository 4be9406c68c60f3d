"""Explain why a log is not being compacted, and which command or setting changes that. Pure.

The obstacle that decides comes first; the obstacles that would hold the log after it follow, with the
numbers that the cleaner itself decides by (`cleaner/rules/pick.py`).

    policy                                    no other obstacle matters
    paused, disk full, quarantined            no pass may begin
    stalled, throttled, waiting               a pass runs, or waits for a thread
    open transaction, high watermark, minimum lag, active segment    nothing dirty may be cleaned yet
    window                                    its passes run at other times
    ratio, nothing dirty                      it is not worth it yet
    held                                      tombstones stay for a group that lags
    fenced                                    damaged segments stay, and tombstones above them
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cleaner.explain.log_findings import (
    fenced,
    held_tombstones,
    limit,
    nothing_dirty,
    open_transaction,
    ratio,
    ratio_after_roll,
    window,
)
from cleaner.explain.situation import Explanation, Finding, Obstacle, Situation
from cleaner.pacing.quarantine import Quarantined
from cleaner.pacing.throttle import IoRates
from cleaner.pool.status import PoolStatus, RunningStatus, Task
from cleaner.rules.pick import Blocker
from cleaner.rules.text import count_text, duration_text, size_text
from storage.formats.log_config import LogConfig

DISK_FULL = "no_space"
"""The `Quarantined.kind` of a failure for lack of space."""

CLEANS = (Task.CLEAN, Task.LEASE)
"""The tasks that compact a log, in this process or in another."""

THROTTLED_SHARE = 0.1
"""A pass that has slept for more than this share of its time counts as throttled."""


def explain(situation: Situation) -> Explanation:
    """Returns why a log is not being compacted, or that it is."""
    running = situation.pool.running_over(situation.topic_partition)
    findings = tuple(_findings(situation, running))
    is_running = running is not None and running.task in CLEANS
    is_eligible = situation.assessment.reason is not None
    return Explanation(
        topic_partition=situation.topic_partition,
        is_running=is_running,
        is_eligible=is_eligible,
        text=_headline(situation, running, findings),
        findings=findings,
    )


def _headline(
    situation: Situation, running: RunningStatus | None, findings: tuple[Finding, ...]
) -> str:
    name = situation.topic_partition
    if running is not None and running.task is Task.CLEAN:
        return f"{name} is being compacted: {running.progress.ratio:.0%} done"
    if running is not None and running.task is Task.LEASE:
        return f"{name} is being compacted by another process, which has a lease on it"
    # Holds and fences keep tombstones, but no pass from running.
    obstacles = [each for each in findings if each.obstacle not in (Obstacle.HELD, Obstacle.FENCED)]
    if obstacles:
        return f"{name} is not being compacted: {obstacles[0].text}"
    reason = situation.assessment.reason
    assert reason is not None, "a log that is not eligible has a blocker"
    return f"{name} is about to be compacted: {reason.name.lower().replace('_', ' ')}"


def _findings(situation: Situation, running: RunningStatus | None) -> Iterator[Finding]:
    if situation.assessment.blocker is Blocker.NOT_COMPACTED:
        yield _policy(situation)
        return
    if situation.paused is not None:
        yield _paused(situation, situation.paused)
    if situation.quarantined is not None:
        yield _quarantined(situation, situation.quarantined)
    if running is not None:
        if running.task is not Task.LEASE:
            yield from _stalled(situation, running)
            yield from _throttled(situation, running)
    elif situation.assessment.reason is not None:
        yield from _waiting(situation)
    if running is None or running.task not in CLEANS:
        yield from _held(situation)
    elif _is_pinned(situation):
        # The pass will end where the transaction begins.
        yield open_transaction(situation)
    if situation.assessment.hold.offset < situation.log_end_offset:
        yield held_tombstones(situation)
    if situation.assessment.known_fences:
        yield fenced(situation)


# ---------------------------------------------------------------- held by an operator or a failure


def _policy(situation: Situation) -> Finding:
    config = situation.config
    policy = ",".join(config.cleanup_policy) or "empty"
    text = f"cleanup.policy is {policy}, which does not hold compact"
    if config.is_mirror and config.policy_compacts:
        text = f"mirror.compaction is {config.mirror_compaction}: it keeps what its source forgets"
    return Finding(
        obstacle=Obstacle.POLICY,
        text=text,
        remedy=policy_remedy(situation.topic_partition.topic, config),
        numbers={"cleanup.policy": policy},
    )


def policy_remedy(topic: str, config: LogConfig) -> str:
    """Returns what lets the cleaner compact a topic that is not compacted."""
    if not config.is_mirror:
        return f"set cleanup.policy=compact for topic {topic}"
    if config.policy_compacts:
        return f"set mirror.compaction=on for topic {topic}"
    return (
        f"set cleanup.policy=compact for topic {topic} at the source of link {config.mirror_link}"
    )


def _paused(situation: Situation, scope: str) -> Finding:
    partition = situation.topic_partition
    what = {"everything": "all cleaning", "topic": f"topic {partition.topic}"}.get(
        scope, f"partition {partition}"
    )
    target = {"everything": "", "topic": f" {partition.topic}"}.get(scope, f" {partition}")
    return Finding(
        obstacle=Obstacle.PAUSED,
        text=f"{what} is paused",
        remedy=f"kompakt compact resume{target}",
        numbers={"scope": scope},
    )


def _quarantined(situation: Situation, entry: Quarantined) -> Finding:
    partition = situation.topic_partition
    retry = duration_text(situation.retry_in_seconds)
    if entry.kind == DISK_FULL:
        obstacle, what = Obstacle.DISK_FULL, "a pass ran out of disk space"
        remedy = "make room on its log directory's disk"
    else:
        obstacle, what = Obstacle.QUARANTINED, "it is in quarantine after a failed pass"
        remedy = "repair what failed (kompakt dump-log --verify shows damage)"
    return Finding(
        obstacle=obstacle,
        text=f"{what}: {entry.reason}; next attempt in {retry} (failures: {entry.failures})",
        remedy=f"{remedy}; kompakt compact now {partition} tries at once",
        numbers={
            "failures": entry.failures,
            "retry_in_seconds": round(situation.retry_in_seconds, 3),
            "reason": entry.reason,
        },
    )


# ---------------------------------------------------------------- held by other passes and budgets


def _stalled(situation: Situation, running: RunningStatus) -> Iterator[Finding]:
    """Yields the finding that a running pass makes no progress, if it does not."""
    stalled = running.progress.stalled_seconds
    if stalled * 1000 < situation.pool.stalled_ms:
        return
    yield Finding(
        obstacle=Obstacle.STALLED,
        text=f"the pass over {running.topic_partition} has made no progress for"
        f" {duration_text(stalled)}, in phase {running.progress.phase.value}",
        remedy="see the stack of its thread in the broker's log, and whether the disk answers;"
        f" kompakt compact cancel {running.topic_partition} ends it as soon as it continues",
        numbers={"stalled_seconds": round(stalled, 3)},
    )


def _throttled(situation: Situation, running: RunningStatus) -> Iterator[Finding]:
    """Yields the finding that a running pass sleeps for a good part of its time, if it does."""
    progress = running.progress
    own = running.topic_partition == situation.topic_partition
    budget = tightest_budget(situation.pool, situation.config.io_rate if own else math.inf)
    if budget is None or progress.throttled_seconds < THROTTLED_SHARE * progress.seconds:
        return
    setting, rate = budget
    left = progress.eta_seconds
    yield Finding(
        obstacle=Obstacle.THROTTLED,
        text=f"the pass over {running.topic_partition} is held to {size_text(rate)}/s by {setting}"
        + (f", about {duration_text(left)} left" if left is not None else ""),
        remedy=f"raise {setting}"
        if "io." in setting
        else "produce less, or set log.cleaner.latency.guard.enable=false",
        numbers={
            "bytes_per_second": rate,
            "setting": setting,
            "throttled_seconds": round(progress.throttled_seconds, 3),
            "seconds": round(progress.seconds, 3),
        },
    )


def tightest_budget(pool: PoolStatus, topic_rate: float) -> tuple[str, float] | None:
    """Returns the setting with the smallest budget, and that in bytes per second; None: no limit.

    Args:
        topic_rate: the budget of the topic itself.
    """
    rates = IoRates() if pool.is_lifted else pool.rates
    guard = math.inf if pool.is_lifted else pool.guard_rate
    budgets = {
        "log.cleaner.io.max.bytes.per.second": rates.total,
        "log.cleaner.io.read.bytes.per.second": rates.read,
        "log.cleaner.io.write.bytes.per.second": rates.write,
        "log.cleaner.latency.guard.enable": guard,
        "compaction.io.max.bytes.per.second": math.inf if pool.is_lifted else topic_rate,
    }
    setting = min(budgets, key=lambda name: budgets[name])
    return None if math.isinf(budgets[setting]) else (setting, budgets[setting])


def _waiting(situation: Situation) -> Iterator[Finding]:
    """Yields the findings that the log waits because all threads work on other logs, if they do."""
    pool = situation.pool
    if situation.paused or situation.quarantined or len(pool.busy) < pool.threads:
        return
    others = ", ".join(str(each.topic_partition) for each in pool.busy)
    many = pool.threads > 1
    busy = (
        f"all {count_text(pool.threads, 'cleaner thread')} are"
        if many
        else "the only cleaner thread is"
    )
    yield Finding(
        obstacle=Obstacle.WAITING,
        text=f"{busy} busy with {others}",
        remedy="wait, or raise log.cleaner.threads (at most to twice its value while the broker runs)",
        numbers={"threads": pool.threads},
    )
    for running in pool.busy:
        yield from _throttled(situation, running)


# ---------------------------------------------------------------- held by the log itself


def _held(situation: Situation) -> Iterator[Finding]:
    """Yields the findings on why a pass may not or should not clean the log, or the rest of it."""
    assessment = situation.assessment
    bounds = assessment.bounds
    if _is_pinned(situation):
        yield open_transaction(situation)
        return
    if assessment.blocker is Blocker.WINDOW:
        yield window(situation)
        return
    if assessment.blocker is Blocker.RATIO:
        yield ratio(situation, assessment.cleanable_bytes)
    # What the rest of the log waits for.
    if assessment.reason is None and bounds.first_uncleanable_offset < situation.log_end_offset:
        yield limit(situation, bounds.limited_by)
    elif assessment.blocker is Blocker.NOTHING_DIRTY:
        yield nothing_dirty(situation)
    if assessment.blocker is Blocker.ACTIVE_SEGMENT:
        yield from ratio_after_roll(situation)
    if situation.transactions and assessment.reason is None:
        yield open_transaction(situation)


def _is_pinned(situation: Situation) -> bool:
    """Returns whether a transaction keeps a pass from advancing at all."""
    first_dirty = situation.assessment.bounds.first_dirty_offset
    is_first = any(each.first_offset <= first_dirty for each in situation.transactions)
    found_so = situation.assessment.blocker is Blocker.LAST_STABLE_OFFSET
    return bool(situation.transactions) and (is_first or found_so)
