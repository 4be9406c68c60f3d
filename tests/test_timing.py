"""No verdict of a test depends on how fast the machine is.

A test waits for an event, with a deadline far beyond what a busy machine needs. A sleep of fixed length
is for what must NOT happen meanwhile (a slow machine is then too kind, never too strict) and for clocks
that must go on. If you add one, raise the number of its file below.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PATIENCE_SECONDS_MIN = 10.0
"""No test gives up sooner on an event."""
DEADLINES = {"timeout", "wait_for"}
"""As in `asyncio.timeout(30)` and `asyncio.wait_for(event, 30)`."""
SLEEPS_MAX = {
    "cleaner/test_pool.py": 6,
    "cleaner/test_pool_requests.py": 3,
    "cleaner/test_pool_stops.py": 1,
    "pipeline/test_cleaning_leases.py": 1,
    "pipeline/test_segment_source.py": 2,
    "server/handlers/test_fetch.py": 2,
    "server/handlers/test_produce_syncs.py": 3,
    "server/metadata_store_contract.py": 1,
    "server/test_broker.py": 1,
    "server/test_cold_reads.py": 1,
    "server/test_connection.py": 9,
    "server/test_group_commit.py": 4,
    "server/test_latency_watch.py": 1,
    "server/test_live_defaults.py": 1,
    "server/test_live_topic_configs.py": 1,
    "server/test_log_clock.py": 3,
    "server/test_outbox.py": 2,
    "server/transactions/test_coordinator.py": 1,
    "server/transactions/test_transaction_facts.py": 1,
    "storage/test_log_threads.py": 1,
}
"""Sleeps of fixed length, outside of loops that poll, of each file that has some."""


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(TESTS).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(TESTS.rglob("*.py"))
    }


@cache
def calls_and_comparisons() -> tuple[tuple[str, ast.expr], ...]:
    return tuple(
        (path, node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Compare)
    )


def name_of(node: ast.expr) -> str:
    """`sleep` of `time.sleep(...)`; empty for what is no call."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


def number(node: ast.expr) -> float:
    """The number that is written there; 0 if none is."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case _:
            return 0.0


def fixed_sleeps() -> Iterator[str]:
    """The file of each sleep whose length is written there. A sleep of 0 is a turn of the loop."""
    sleeps = [
        (path, node)
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Call)
        and name_of(node) == "sleep"
        and node.args
        and number(node.args[0])
    ]
    polling = {path: set(polling_nodes(trees()[path])) for path, _ in sleeps}
    return (path for path, node in sleeps if node not in polling[path])


def polling_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """All that is within a loop that looks for something, and ends with it."""
    for loop in ast.walk(tree):
        ends = isinstance(loop, ast.For) and any(isinstance(it, ast.Break) for it in ast.walk(loop))
        if isinstance(loop, ast.While) or ends:
            yield from ast.walk(loop)


def test_a_sleep_of_fixed_length_is_counted() -> None:
    more = Counter(fixed_sleeps()) - Counter(SLEEPS_MAX)

    assert not more, "wait for the event instead"


def test_nobody_waits_too_short_for_an_event() -> None:
    hasty = [
        f"{path}:{node.lineno}"
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Call)
        and name_of(node) in DEADLINES
        and node.args
        and 0 < number(node.args[-1]) < PATIENCE_SECONDS_MIN
    ]

    assert not hasty


def test_nothing_is_said_to_be_fast_in_seconds() -> None:
    """As in `assert time.monotonic() - start < 2`."""
    hasty = [
        f"{path}:{node.lineno}"
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Compare)
        and any(name_of(it) == "monotonic" for it in ast.walk(node) if isinstance(it, ast.expr))
        and isinstance(node.ops[-1], ast.Lt | ast.LtE)
        and 0 < number(node.comparators[-1]) < PATIENCE_SECONDS_MIN
    ]

    assert not hasty
