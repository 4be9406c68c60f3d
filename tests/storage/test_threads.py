"""Thread decorators: nothing at all when off; when on, one thread per object of the loop."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.threads import any_thread, loop_thread
from tests.harness.wrong_threads import WRONG_CALLS

ROOT = Path(__file__).resolve().parents[2]
MARKS = {"loop_thread", "any_thread"}

IDENTITY = """
from storage.log.appender import LogAppender
from storage.threads import IS_CHECKED, any_thread, loop_thread

class Counter:
    def add(self): ...

def add(): ...

before = dict(vars(Counter))
for decorator in (loop_thread, any_thread):
    assert decorator(Counter) is Counter
    assert decorator(add) is add
assert dict(vars(Counter)) == before
assert not vars(add)
assert not hasattr(LogAppender.append_as_leader, "__wrapped__")
assert not IS_CHECKED
"""


@loop_thread
class Owned:
    """Belongs to the loop."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int = 1) -> int:
        self.total += count
        return self.total

    async def add_later(self) -> int:
        await asyncio.sleep(0)
        return self.add()

    @property
    def double(self) -> int:
        return 2 * self.total

    @any_thread
    def peek(self) -> int:
        return self.total

    @property
    @any_thread
    def seen(self) -> int:
        return self.total


@any_thread
class Shared:
    """Belongs to all threads."""

    __slots__ = ()

    @loop_thread
    def append(self) -> int:
        return 1

    def sync(self) -> int:
        return 2


@pytest.fixture(autouse=True)
def forget_calls_made_on_purpose() -> Iterator[None]:
    yield
    WRONG_CALLS.take()


def in_thread(work: Callable[[], int]) -> int:
    """Returns the result of `work` in a thread of its own, or raises its exception."""
    results: list[int] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            errors.append(error)

    thread = threading.Thread(target=run, name="another")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def test_decorators_return_the_object_itself_unless_the_variable_is_set() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "KOMPAKT_DEBUG_THREADS"}

    done = subprocess.run(
        [sys.executable, "-c", IDENTITY],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda owned: owned.add(), id="method"),
        pytest.param(lambda owned: owned.double, id="property"),
        pytest.param(lambda owned: asyncio.run(owned.add_later()), id="coroutine"),
    ],
)
def test_call_from_a_second_thread_is_refused(call: Callable[[Owned], int]) -> None:
    owned = Owned()
    owned.add()

    with pytest.raises(AssertionError, match=r"thread another, but .* Owned\.add"):
        in_thread(lambda: call(owned))


def test_methods_for_any_thread_are_not_checked() -> None:
    owned = Owned()
    owned.add(3)

    assert in_thread(owned.peek) == 3
    assert in_thread(lambda: owned.seen) == 3


def test_method_of_the_loop_in_a_class_for_any_thread_is_checked() -> None:
    shared = Shared()
    shared.append()

    assert in_thread(shared.sync) == 2
    with pytest.raises(AssertionError, match=r"Shared\.append"):
        in_thread(shared.append)


def test_object_passes_to_another_thread_when_its_owner_has_ended() -> None:
    owned = Owned()
    in_thread(owned.add)

    assert owned.add() == 2


def test_constructor_may_run_in_another_thread() -> None:
    made: list[Owned] = []
    thread = threading.Thread(target=lambda: made.append(Owned()))
    thread.start()

    thread.join()

    assert made[0].add() == 1
    assert made[0].add() == 2


def test_new_object_at_the_address_of_an_old_one_has_no_owner() -> None:
    for _ in range(100):
        Owned().add()  # The next one is likely to get the same address.
        assert in_thread(Owned().add) == 1


def test_class_is_marked_if_one_of_its_methods_belongs_to_the_loop() -> None:
    """The mark of a method is checked only where the mark of its class wraps it."""
    unmarked = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for folder in ("storage", "cleaner", "server")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and not MARKS & names_of(node)
        and any(
            "loop_thread" in names_of(each)
            for each in node.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    ]

    assert not unmarked


def names_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
