"""What a check of a permission costs, with many ACLs for one principal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from bench.base.figure import Figure, interleaved
from server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from server.security.authorizer import Authorizer
from server.security.principal import Principal

HOST = "10.0.0.1"
ALICE = Principal.parse("User:alice")
CHECKS = 200_000
TOPICS_CACHED = 1_000


def authorization_figures(pairs: int) -> list[Figure]:
    """Measure checks of one principal that has 10,000, then 100,000 ACLs: cached and not cached."""
    figures = []
    for count in (10_000, 100_000):
        authorizer = authorizer_with(count)
        name = f"{count // 1000},000 ACLs of one principal"
        figures += [
            cached_figure(authorizer, f"cached check, {name}", pairs),
            uncached_figure(authorizer, f"first check, {name}", count, pairs),
        ]
    return figures


def authorizer_with(count: int) -> Authorizer:
    """Returns an authorizer with ACLs on as many topics, a third of them prefixes of ten lengths."""
    if "KOMPAKT_DEBUG_THREADS" in os.environ:
        raise SystemExit("KOMPAKT_DEBUG_THREADS is set: the checks of threads would be measured")
    authorizer = Authorizer(super_users=(), allows_without_acl=False)
    authorizer.add(
        Acl(
            ResourceType.TOPIC,
            name_of(number) + "-" * (number % 10) if number % 3 == 0 else name_of(number),
            PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL,
            str(ALICE),
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        for number in range(count)
    )
    return authorizer


def name_of(number: int) -> str:
    return f"topic-{number:08}"


def cached_figure(authorizer: Authorizer, name: str, pairs: int) -> Figure:
    names = [name_of(number) for number in range(TOPICS_CACHED)]

    def check() -> None:
        decide, kind, read = authorizer.decide, ResourceType.TOPIC, Operation.READ
        for each in names:
            decide(ALICE, HOST, read, kind, each)

    check()
    return figure_of(name, pairs, lambda: microseconds(check, CHECKS // TOPICS_CACHED))


def uncached_figure(authorizer: Authorizer, name: str, count: int, pairs: int) -> Figure:
    names = [name_of(number) for number in range(0, count, max(1, count // 5_000))]

    def check() -> None:
        authorizer.add(())  # a change, which empties the cache
        decide, kind, read = authorizer.decide, ResourceType.TOPIC, Operation.READ
        for each in names:
            decide(ALICE, HOST, read, kind, each)

    return figure_of(name, pairs, lambda: microseconds(check, 1) * TOPICS_CACHED / len(names))


def figure_of(name: str, pairs: int, measure: Callable[[], float]) -> Figure:
    """Returns the figure beside the time of a look-up of five values in a dict."""
    known = {(ALICE, HOST, 3, 2, name_of(number)): True for number in range(TOPICS_CACHED)}
    names = [name_of(number) for number in range(TOPICS_CACHED)]

    def look_up() -> None:
        for each in names:
            known.get((ALICE, HOST, 3, 2, each))

    return interleaved(
        name,
        "CPU-us",
        measure,
        lambda: microseconds(look_up, CHECKS // TOPICS_CACHED),
        limit_is="a look-up of the same key in a dict",
        pairs=pairs,
    )


def microseconds(work: Callable[[], None], times: int) -> float:
    """Returns the processor time of one of the thousand checks in `work`."""
    started = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - started) / times / TOPICS_CACHED * 1e6
