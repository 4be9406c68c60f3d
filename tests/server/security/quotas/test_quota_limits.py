"""Which quota applies to a client: the table of Kafka's ClientQuotaManagerTest."""

from __future__ import annotations

import pytest

from server.security.quotas.quota_entity import CLIENT_ID, USER, QuotaEntity
from server.security.quotas.quota_limits import CACHED_CLIENTS_MAX, Client, QuotaLimits

Name = str | None
NONE = object()


def entity(*, user: object = NONE, client_id: object = NONE) -> QuotaEntity:
    parts = [(USER, user), (CLIENT_ID, client_id)]
    return QuotaEntity.of((type_, name) for type_, name in parts if name is not NONE)  # type: ignore[misc]


def limits(*values: tuple[QuotaEntity, float]) -> QuotaLimits:
    found = QuotaLimits()
    for each, bound in values:
        found.set(each, bound)
    return found


def full() -> QuotaLimits:
    """The quotas of testQuotaConfigPrecedence, in KB."""
    return limits(
        (entity(user=None), 1000),
        (entity(client_id=None), 2000),
        (entity(user=None, client_id=None), 3000),
        (entity(user="alice"), 4000),
        (entity(user="alice", client_id="client1"), 5000),
        (entity(user="bob"), 6000),
        (entity(user="bob", client_id="client1"), 7000),
        (entity(user="bob", client_id=None), 8000),
        (entity(user="carol"), 10000),
        (entity(user=None, client_id="client1"), 9000),
        (entity(client_id="client5"), 11000),
    )


@pytest.mark.parametrize(
    ("user", "client_id", "bound", "sharer"),
    [
        ("alice", "client1", 5000, ("alice", "client1")),
        ("alice", "client2", 4000, ("alice", "")),
        ("alice", "client3", 4000, ("alice", "")),
        ("bob", "client1", 7000, ("bob", "client1")),
        ("bob", "client2", 8000, ("bob", "client2")),
        ("bob", "client3", 8000, ("bob", "client3")),
        ("carol", "client1", 10000, ("carol", "")),
        ("carol", "client2", 10000, ("carol", "")),
        ("dave", "client1", 9000, ("dave", "client1")),
        ("erin", "client2", 3000, ("erin", "client2")),
        ("erin", "client5", 3000, ("erin", "client5")),
        ("erin", "", 1000, ("erin", "")),
    ],
)
def test_the_most_specific_quota_wins(
    user: str, client_id: str, bound: float, sharer: tuple[str, str]
) -> None:
    assert full().find(Client(user, client_id)) == (bound, sharer)


def test_without_the_defaults_of_both_the_user_default_is_next_and_then_the_client_ids() -> None:
    found = full()
    found.set(entity(user=None, client_id=None), None)
    assert found.find(Client("erin", "client5")) == (1000, ("erin", ""))
    found.set(entity(user=None), None)
    assert found.find(Client("erin", "client5")) == (11000, ("", "client5"))
    assert found.find(Client("erin", "client6")) == (2000, ("", "client6"))
    found.set(entity(client_id=None), None)
    assert found.find(Client("erin", "client6")) is None


def test_an_empty_client_id_has_no_quota_of_client_ids() -> None:
    found = limits((entity(client_id=None), 1), (entity(user="alice", client_id=None), 2))
    assert found.find(Client("alice", "")) is None


def test_a_change_applies_to_clients_whose_quota_is_known() -> None:
    found = limits((entity(user="alice"), 1))
    assert found.find(Client("alice", "app")) == (1, ("alice", ""))
    found.set(entity(user="alice", client_id="app"), 7)
    assert found.find(Client("alice", "app")) == (7, ("alice", "app"))
    found.set(entity(user="alice", client_id="app"), None)
    assert found.find(Client("alice", "app")) == (1, ("alice", ""))


def test_the_cache_of_decisions_is_bounded() -> None:
    found = limits((entity(client_id=None), 1))
    for number in range(CACHED_CLIENTS_MAX + 5):
        assert found.find(Client("alice", f"id-{number}"))
    assert len(found._cache) <= CACHED_CLIENTS_MAX


def test_a_hundred_thousand_quotas_are_found_by_looking_up_eight_names() -> None:
    found = limits(*((entity(user=f"user-{number}"), number + 1) for number in range(100_000)))
    assert found.find(Client("user-77777", "app")) == (77778, ("user-77777", ""))
    assert found.find(Client("other", "app")) is None
