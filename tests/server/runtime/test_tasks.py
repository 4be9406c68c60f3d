"""Background work: its exceptions are logged and counted, and one module starts all of it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics.mistakes import MISTAKES
from server.runtime.tasks import (
    call_later,
    call_soon,
    every,
    guarded,
    raising,
    spawn,
    to_its_end,
)

ROOT = Path(__file__).resolve().parents[3]
BEGINNINGS = frozenset(
    {"create_task", "ensure_future", "call_later", "call_at", "call_soon", "call_soon_threadsafe"}
)
ALLOWED = {
    "server/runtime/tasks.py": "the one place",
    "server/net/connection.py": "once a request: both tasks and the callback answer for themselves",
    "server/net/replies.py": "once a turn: it sends what is ready; a failed send closes",
    "server/runtime/turns.py": "once a slice: it only lets a waiting request continue",
    "server/durability/group_commit.py": "once a sync round: each part of it fails its waiters",
    "metrics/http_connections.py": "a leaf, which knows no server; its sweep only closes connections",
    "cleaner/pool/index_ahead.py": "it logs what fails; the next look begins another one",
    "cleaner/pool/watchdog.py": "it only reports, logs what fails, and continues",
    "cleaner/pool/workers.py": "the workers; what one raises is counted, and a dead one is a metric",
}

NEEDS_A_TASK = frozenset({"timeout", "timeout_at", "TaskGroup", "current_task", "wait_for"})
IN_TASKS_OF_THEIR_OWN = {
    "cleaner/pool/workers.py",
    "server/coordination/checkpoint_upkeep.py",
    "server/durability/log_clock.py",
    "server/runtime/event_wait.py",
    "server/topics/names_in_use.py",
    "server/admin/lease_routes.py",
    "server/client/broker_client.py",
    "server/lookup/change_routes.py",
    "server/net/tls_handshake.py",
    "server/replication/groups/group_sync.py",
    "server/replication/verify/cost.py",
    "server/security/sasl/issuer_keys.py",
    "server/standby/peers.py",
}
"""The HTTP endpoint, links, standbys, handshakes, the cleaner, and what works on topics: a request waits
for its task (`server/topics/work.py`)."""


def beginnings(path: Path) -> Iterator[int]:
    """Yields the lines on which a module hands work to the event loop."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            is_ours = isinstance(function, ast.Name) or name not in BEGINNINGS
            if not is_ours:
                yield node.lineno


def test_background_work_begins_nowhere_else() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for folder in ("server", "cleaner", "metrics", "storage")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := list(beginnings(path)))
    }
    assert found.keys() <= ALLOWED.keys(), found
    assert found.keys() == ALLOWED.keys(), "remove from the list what needs no exception"


def test_no_request_asks_for_its_task() -> None:
    """The first step of a request runs in none (`server/net/shortcuts.py`)."""
    found, imported = set[str](), set[str]()
    for folder in ("server", "cleaner", "metrics", "storage", "protocol"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in NEEDS_A_TASK:
                    found |= {name} if _is_asyncio(node.value) else set()
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names = {each.name for each in node.names}
                    assert node.module != "asyncio" or not names & NEEDS_A_TASK, name
                    if name.startswith("server/handlers/"):
                        imported.add(node.module.replace(".", "/") + ".py")
    assert found == IN_TASKS_OF_THEIR_OWN
    assert not imported & IN_TASKS_OF_THEIR_OWN


def _is_asyncio(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "asyncio"


def failures(name: str) -> int:
    return MISTAKES.by_work().get(name, 0)


async def test_what_a_task_raises_is_logged_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, told = failures("task"), list[BaseException]()
    error = RuntimeError("a mistake")
    task = spawn(raising(error), "task", failed=told.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert told == [error]
    assert failures("task") == before + 1
    assert "task: failed unexpectedly" in caplog.text
    assert "RuntimeError: a mistake" in caplog.text


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_task_that_is_cancelled_has_not_failed() -> None:
    before, held = failures("task"), set[asyncio.Task[None]]()
    task = spawn(wait_for_ever(), "task", among=held)
    assert held == {task}
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert failures("task") == before
    assert not held


async def test_what_a_callback_raises_is_counted() -> None:
    before = failures("callback")
    over = asyncio.Event()
    call_soon("callback", divmod, 1, 0)
    call_later(0, "callback", divmod, 1, 0)
    call_later(0.001, "callback", over.set)
    await over.wait()
    assert failures("callback") == before + 2


async def test_a_step_that_fails_does_not_end_the_others() -> None:
    steps = 0
    over = asyncio.Event()

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            over.set()
        raise RuntimeError("a mistake")

    before = failures("steps")
    task = spawn(every(0, step, "steps"), "steps")
    await over.wait()
    task.cancel()
    await asyncio.wait([task])
    assert failures("steps") >= before + 2


def test_a_guarded_block_does_not_swallow_what_ends_the_process() -> None:
    with pytest.raises(KeyboardInterrupt), guarded("block"):
        raise KeyboardInterrupt


async def test_work_that_is_to_end_ends_before_its_cancelled_caller() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        begun.set()
        await may_end.wait()
        ended.append("work")

    async def caller() -> None:
        try:
            await to_its_end(work())
        finally:
            ended.append("caller")

    task = asyncio.create_task(caller())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["work", "caller"]


async def test_the_caller_gets_what_its_work_returns_or_raises() -> None:
    async def work(*, fails: bool) -> int:
        if fails:
            raise ValueError
        return 3

    assert await to_its_end(work(fails=False)) == 3
    with pytest.raises(ValueError, match=r"^$"):
        await to_its_end(work(fails=True))
