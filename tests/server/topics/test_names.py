"""Kafka's rules for topic names, and topic ids."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.topics.names import collision_key, fault_of_name, new_topic_id, parse_id
from storage.files.paths import topic_id_text


@pytest.mark.parametrize("name", ["a", "orders.v1", "A_b-c.9", "...", "x" * 249, "__offsets"])
def test_a_legal_name_has_no_fault(name: str) -> None:
    assert fault_of_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\x00", "a:b", "٣"]
)
def test_an_illegal_name_has_a_fault(name: str) -> None:
    assert fault_of_name(name)


def test_names_that_differ_in_dots_and_underscores_only_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b")
    assert collision_key("a.b") != collision_key("a-b")
    assert collision_key("a.b") != collision_key("ab")


def test_ids_are_never_zero_and_never_look_like_an_option() -> None:
    drawn = iter([uuid.UUID(int=0), uuid.UUID(int=0xF8 << 120), uuid.UUID(int=7)])

    assert new_topic_id(lambda: next(drawn)) == uuid.UUID(int=7)


@given(st.uuids())
def test_an_id_survives_its_text(topic_id: uuid.UUID) -> None:
    text = topic_id_text(topic_id)

    assert len(text) == 22
    assert parse_id(text) == topic_id
