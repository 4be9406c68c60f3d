"""A plugin of pytest: processor time by test file, which other work on the machine does not change much.

    python -m pytest -p tests.harness.cpu_times tests/server    in one process, without -n

The time of a test includes that of the processes which it started and waited for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator
from heapq import nlargest
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest

FILES_SHOWN = 40

seconds: defaultdict[str, float] = defaultdict(float)
tests: Counter[str] = Counter()
longest: dict[str, tuple[float, str]] = {}


def used_seconds() -> float:
    """Returns the processor time of this process, its threads, and the children that have ended."""
    found = (getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    began = used_seconds()
    result = yield
    taken = used_seconds() - began
    file, _, name = item.nodeid.partition("::")
    seconds[file] += taken
    tests[file] += 1
    longest[file] = max(longest.get(file, (0.0, "")), (taken, name))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write = terminalreporter.write_line
    write(
        f"processor time: {used_seconds():.1f} s, of which in tests {sum(seconds.values()):.1f} s"
    )
    for file, taken in nlargest(FILES_SHOWN, seconds.items(), key=lambda item: item[1]):
        most, name = longest[file]
        write(f"{taken:8.2f} s {tests[file]:5} tests  {file}  ({most:.2f} s: {name[:60]})")
