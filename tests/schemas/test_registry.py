"""What is remembered of a registry's schemas, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas import registry as registry_module
from schemas.outcomes import (
    REGISTRY_FAILED,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    UNKNOWN_SCHEMA,
    Undecoded,
)
from schemas.registry import FAILURE_SECONDS, Found, Registry
from schemas.registry_answers import Unavailable
from schemas.schema import Schema, SchemaType


class Source:
    """Answers as a test wants, and counts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = list[int]()
        self.answer: Callable[[int], Schema] = schema_of

    def schema(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
        return self.answer(schema_id)

    def registry(self) -> Registry:
        return Registry(self, monotonic=lambda: self.now)


def schema_of(schema_id: int, text: str = "text") -> Schema:
    return Schema(id=schema_id, type=SchemaType.AVRO, text=text)


def fail(code: str) -> Callable[[int], Schema]:
    def answer(schema_id: int) -> Schema:
        raise Unavailable(code, f"no {schema_id}")

    return answer


def code_of(found: Found | None) -> str:
    assert isinstance(found, Undecoded)
    return found.code


def test_a_schema_is_fetched_once() -> None:
    source = Source()
    registry = source.registry()

    assert registry.known(7) is None
    assert registry.schema(7) == schema_of(7)
    source.now = 1e9
    assert registry.schema(7) == registry.known(7) == schema_of(7)
    assert source.asked == [7]


@pytest.mark.parametrize("code", [UNKNOWN_SCHEMA, REGISTRY_FAILED])
def test_a_missing_schema_is_asked_for_again_after_a_while(code: str) -> None:
    source = Source()
    registry = source.registry()
    source.answer = fail(code)

    assert code_of(registry.schema(7)) == code_of(registry.known(7)) == code
    assert registry.known(8) is None
    source.now, source.answer = FAILURE_SECONDS, schema_of
    assert registry.known(7) is None
    assert registry.schema(7) == schema_of(7)
    assert source.asked == [7, 7]


@pytest.mark.parametrize("code", [REGISTRY_UNREACHABLE, REGISTRY_REFUSED])
def test_a_registry_that_is_down_is_left_alone_for_a_while(code: str) -> None:
    source = Source()
    registry = source.registry()
    registry.schema(1)
    source.answer = fail(code)

    assert code_of(registry.schema(7)) == code
    other = registry.known(8)
    assert code_of(other) == code
    assert isinstance(other, Undecoded)
    assert other.schema_id == 8
    assert registry.schema(1) == schema_of(1)
    source.now, source.answer = FAILURE_SECONDS, schema_of
    assert registry.schema(8) == schema_of(8)
    assert source.asked == [1, 7, 8]


def test_the_schemas_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "SCHEMAS_MAX", 2)
    registry = Source().registry()
    for each in (1, 2, 1, 3):
        registry.schema(each)

    assert [registry.known(each) is not None for each in (1, 2, 3)] == [True, False, True]


def test_large_schemas_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "CHARS_MAX", 10)
    source = Source()
    source.answer = lambda schema_id: schema_of(schema_id, "x" * 6)
    registry = source.registry()
    registry.schema(1)
    registry.schema(2)

    assert [registry.known(each) is not None for each in (1, 2)] == [False, True]
    source.answer = lambda schema_id: schema_of(schema_id, "x" * 100)
    registry.schema(3)
    assert [registry.known(each) is not None for each in (2, 3)] == [False, True]


def test_values_that_name_schemas_by_chance_do_not_flood_the_registry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "FAILURES_MAX", 2)
    source = Source()
    registry = source.registry()
    registry.schema(1)
    source.answer = fail(UNKNOWN_SCHEMA)
    for each in (2, 3, 4, 5):
        assert code_of(registry.schema(each)) == UNKNOWN_SCHEMA

    assert source.asked == [1, 2, 3]
    found = registry.known(4)
    assert isinstance(found, Undecoded)
    assert "lacks 2 schemas that values named last" in found.reason
    assert registry.known(1) == schema_of(1)
    source.now, source.answer = FAILURE_SECONDS, schema_of
    assert registry.schema(4) == schema_of(4)


def test_threads_that_want_the_same_schema_wait_for_one_of_them() -> None:
    source, begun, go = Source(), threading.Event(), threading.Event()

    def slow(schema_id: int) -> Schema:
        begun.set()
        assert go.wait(10)
        return schema_of(schema_id)

    source.answer = slow
    registry = source.registry()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(registry.schema, 7)
        assert begun.wait(10)
        others = [threads.submit(registry.schema, 7) for _ in range(2)]
        go.set()
        assert {each.result(10) for each in (first, *others)} == {schema_of(7)}
    assert source.asked == [7]


def test_an_unexpected_error_reaches_all_that_wait_and_is_not_remembered() -> None:
    source = Source()
    registry = source.registry()

    def broken(_: int) -> Schema:
        raise RuntimeError("broken")

    source.answer = broken
    with pytest.raises(RuntimeError, match="broken"):
        registry.schema(7)
    source.answer = schema_of
    assert registry.schema(7) == schema_of(7)
