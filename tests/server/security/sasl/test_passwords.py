"""Passwords for PLAIN: the configuration's users first, then the SCRAM users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from server.runtime.executors import Executor
from server.security.sasl import passwords
from server.security.sasl.passwords import PASSWORD_BYTES_MAX, Passwords
from server.security.scram_credentials import (
    ScramMechanism,
    ScramVerifier,
    salted_password,
    verifier_of,
)
from server.security.scram_store import ScramStore

DECLARED = {"alice": "alice-secret"}


class CountingExecutor:
    """Runs the work at once, and counts it."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        self.runs += 1
        return work(*args)


def verifier(password: str, mechanism: ScramMechanism) -> ScramVerifier:
    salted = salted_password(mechanism, password, b"salt", 4096)
    return verifier_of(mechanism, salted, salt=b"salt", iterations=4096)


def checker(*users: str) -> tuple[Passwords, CountingExecutor, ScramStore]:
    """Returns a checker for SCRAM users whose passwords are NAME-pw."""
    store = ScramStore(cast("Any", None))
    for number, name in enumerate(users):
        mechanism = list(ScramMechanism)[number % 2]
        store._put((name, mechanism), verifier(f"{name}-pw", mechanism))
    executor = CountingExecutor()
    return Passwords(store, cast("Executor", executor)), executor, store


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [
        ("alice", "alice-secret", True),
        ("alice", "alice-secre", False),
        ("alice", "", False),
        ("bob", "bob-pw", True),
        ("bob", "carol-pw", False),
        ("carol", "carol-pw", True),
        ("nobody", "", False),
        ("nobody", "nobody-pw", False),
    ],
)
async def test_each_user_has_its_password(user: str, password: str, is_right: bool) -> None:
    checked, _, _ = checker("bob", "carol")
    assert await checked.is_right(user, password, DECLARED) is is_right


async def test_a_declared_user_does_not_have_its_scram_password_too() -> None:
    checked, _, _ = checker("alice")
    assert not await checked.is_right("alice", "alice-pw", DECLARED)
    assert await checked.is_right("alice", "alice-secret", DECLARED)


async def test_every_wrong_password_costs_one_derivation() -> None:
    checked, executor, _ = checker("bob")
    for user in ("alice", "bob", "nobody"):
        before = executor.runs
        assert not await checked.is_right(user, "wrong", DECLARED)
        assert executor.runs == before + 1


async def test_without_scram_users_no_password_costs_a_derivation() -> None:
    checked, executor, _ = checker()
    assert not await checked.is_right("nobody", "wrong", DECLARED)
    assert not await checked.is_right("alice", "wrong", DECLARED)
    assert executor.runs == 0


async def test_a_right_password_is_derived_once() -> None:
    checked, executor, _ = checker("bob")
    for _ in range(3):
        assert await checked.is_right("bob", "bob-pw", {})
    assert executor.runs == 1
    assert not await checked.is_right("bob", "bob-pv", {})


async def test_a_changed_password_is_not_remembered() -> None:
    checked, _, store = checker("bob")
    assert await checked.is_right("bob", "bob-pw", {})
    store._put(("bob", ScramMechanism.SHA_256), verifier("new", ScramMechanism.SHA_256))
    assert not await checked.is_right("bob", "bob-pw", {})
    assert await checked.is_right("bob", "new", {})


async def test_a_deleted_user_is_not_remembered() -> None:
    checked, _, store = checker("bob", "carol")
    assert await checked.is_right("bob", "bob-pw", {})
    store._remove(("bob", ScramMechanism.SHA_256))
    assert not await checked.is_right("bob", "bob-pw", {})


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 2)
    checked, executor, _ = checker("a", "b", "c")
    for user in ("a", "b", "a", "c", "a"):
        assert await checked.is_right(user, f"{user}-pw", {})
    assert executor.runs == 3, "a was used after b, so b was forgotten"
    assert len(checked._remembered) == 2


async def test_a_huge_password_costs_no_derivation() -> None:
    checked, executor, _ = checker("bob")
    assert not await checked.is_right("bob", "x" * (PASSWORD_BYTES_MAX + 1), {})
    assert executor.runs == 0
