"""Checks of entities and values, in Kafka's words (ClientQuotaControlManagerTest)."""

from __future__ import annotations

import math

import pytest

from server.security.quotas.quota_entity import (
    QuotaEntity,
    canonical_ip,
    fault_of_entity,
    fault_of_quota,
)

Parts = list[tuple[str, str | None]]


@pytest.mark.parametrize(
    "parts",
    [
        [("user", "alice")],
        [("user", None)],
        [("client-id", "app")],
        [("user", None), ("client-id", "app")],
        [("ip", None)],
        [("ip", "10.0.0.7")],
        [("ip", "::1")],
    ],
)
def test_an_entity_of_kafka_may_have_quotas(parts: Parts) -> None:
    assert fault_of_entity(QuotaEntity.of(parts)) is None


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ([], "Invalid empty client quota entity"),
        ([("team", "x")], "Unhandled client quota entity type: team"),
        ([("user", "")], "Empty user not supported"),
        (
            [("user", "a"), ("user", "b")],
            "Invalid client quota entity, duplicate entity entry user",
        ),
        (
            [("ip", "10.0.0.7"), ("user", "a")],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ([("ip", "1.2.3")], "1.2.3 is not a valid IP or resolvable host."),
    ],
)
def test_any_other_is_refused(parts: Parts, fault: str) -> None:
    assert fault_of_entity(QuotaEntity.of(parts)) == fault


@pytest.mark.parametrize(
    ("type_", "key", "value", "fault"),
    [
        ("user", "producer_byte_rate", 1024.0, None),
        ("user", "request_percentage", 0.5, None),
        ("ip", "connection_creation_rate", 10.0, None),
        ("ip", "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        ("user", "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ("user", "speed", 1.0, "Invalid configuration key speed"),
        ("user", "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("user", "producer_byte_rate", math.nan, "Quota producer_byte_rate must be greater than 0"),
        ("user", "producer_byte_rate", 0.5, "producer_byte_rate cannot be a fractional value."),
        (
            "user",
            "consumer_byte_rate",
            1e30,
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            "ip",
            "connection_creation_rate",
            3e9,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)  # fmt: skip
def test_values_are_checked(type_: str, key: str, value: float, fault: str | None) -> None:
    assert fault_of_quota(QuotaEntity.of([(type_, None)]), key, value) == fault


def test_the_stored_text_gives_the_same_entity() -> None:
    for parts in ([("user", 'a"/é')], [("user", None), ("client-id", "<default>")]):
        entity = QuotaEntity.of(parts)
        assert QuotaEntity.from_text(entity.to_text()) == entity


def test_the_order_of_the_parts_does_not_matter() -> None:
    one = QuotaEntity.of([("user", "a"), ("client-id", "b")])
    assert one == QuotaEntity.of([("client-id", "b"), ("user", "a")])


def test_an_address_has_one_spelling() -> None:
    assert canonical_ip("::ffff:10.0.0.7") == "10.0.0.7"
    assert canonical_ip("0:0::1") == "::1"
    assert canonical_ip("localhost") is None
