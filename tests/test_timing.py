"""No test's result depends on the speed of the machine.

A test waits for an event, with a deadline far beyond what a busy machine needs. Use a sleep of fixed
length only to show that something does NOT happen (a slow machine then makes the test less strict, never
more) and for clocks that must advance. If you add one, raise the number of its file below.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PATIENCE_SECONDS_MIN = 10.0
"""The shortest deadline for an event."""
DEADLINES = {"timeout", "wait_for"}
"""Functions with a deadline, as in `asyncio.timeout(30)` and `asyncio.wait_for(event, 30)`."""
SLEEPS_MAX = {
    "cleaner/pool/test_pool.py": 6,
    "cleaner/pool/test_pool_requests.py": 3,
    "cleaner/pool/test_pool_stops.py": 1,
    "pipeline/cleaning/test_leases.py": 1,
    "pipeline/source/test_segment_source.py": 2,
    "server/admin/test_latency_watch.py": 1,
    "server/coordination/transactions/test_coordinator.py": 1,
    "server/coordination/transactions/test_transaction_facts.py": 1,
    "server/durability/test_group_commit.py": 4,
    "server/durability/test_log_clock.py": 3,
    "server/handlers/test_fetch.py": 2,
    "server/handlers/test_produce_syncs.py": 3,
    "server/metadata_store_contract.py": 1,
    "server/net/test_connection.py": 9,
    "server/net/test_outbox.py": 2,
    "server/runtime/test_cold_reads.py": 1,
    "server/test_broker.py": 1,
    "server/test_live_defaults.py": 1,
    "server/test_live_topic_configs.py": 1,
    "storage/log/test_log_threads.py": 1,
}
"""The number of sleeps of fixed length in each file, not counting those in polling loops."""


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
    """Returns the name of the called function, `sleep` for `time.sleep(...)`; empty if it is no call."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


def number(node: ast.expr) -> float:
    """Returns the value of a number literal; 0 for any other expression."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case _:
            return 0.0


def fixed_sleeps() -> Iterator[str]:
    """Returns the file of each sleep with a literal length. A sleep of 0 only yields to the loop."""
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
    """Returns all nodes within loops that poll for a condition."""
    for loop in ast.walk(tree):
        ends = isinstance(loop, ast.For) and any(isinstance(it, ast.Break) for it in ast.walk(loop))
        if isinstance(loop, ast.While) or ends:
            yield from ast.walk(loop)


def test_a_sleep_of_fixed_length_is_counted() -> None:
    more = Counter(fixed_sleeps()) - Counter(SLEEPS_MAX)

    assert not more, "wait for the event instead"


def test_no_deadline_for_an_event_is_too_short() -> None:
    hasty = [
        f"{path}:{node.lineno}"
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Call)
        and name_of(node) in DEADLINES
        and node.args
        and 0 < number(node.args[-1]) < PATIENCE_SECONDS_MIN
    ]

    assert not hasty


def test_no_test_has_a_time_limit_of_its_own() -> None:
    """The limit for all tests only ends one that hangs. One near a test's usual time is a verdict on the
    machine: 300 s ended a sweep of 193 s while another program used a core."""
    limited = [
        f"{path}:{node.lineno}"
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.timeout"
    ]

    assert limited == []


def test_no_test_asserts_a_speed_in_seconds() -> None:
    """No test asserts a bound on elapsed time, as in `assert time.monotonic() - start < 2`."""
    hasty = [
        f"{path}:{node.lineno}"
        for path, node in calls_and_comparisons()
        if isinstance(node, ast.Compare)
        and any(name_of(it) == "monotonic" for it in ast.walk(node) if isinstance(it, ast.expr))
        and isinstance(node.ops[-1], ast.Lt | ast.LtE)
        and 0 < number(node.comparators[-1]) < PATIENCE_SECONDS_MIN
    ]

    assert not hasty
