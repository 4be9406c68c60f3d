"""What clients have used of their quotas: pauses, shared quotas, forgotten rates."""

from __future__ import annotations

import pytest

from server.security.quotas.client_quotas import (
    IDLE_MS_MAX,
    ClientQuotas,
    Measures,
    MutationQuota,
    RateQuota,
)
from server.security.quotas.quota_entity import CLIENT_ID, USER, QuotaEntity
from server.security.quotas.quota_limits import Client
from server.security.quotas.rates import Rate, Windows

WINDOWS = Windows(count=11, seconds=1)
ALICE = QuotaEntity.of([(USER, "alice")])
EACH_CLIENT = QuotaEntity.of([(CLIENT_ID, None)])


def rate_quota(entity: QuotaEntity, bound: float, throttle_ms_max: int | None = None) -> RateQuota:
    quota = RateQuota(WINDOWS, throttle_ms_max=throttle_ms_max)
    quota.set(entity, bound)
    return quota


def test_a_client_beyond_its_quota_pauses_until_its_rate_is_within() -> None:
    quota, alice = rate_quota(ALICE, 100), Client("alice", "app")
    assert quota.record(alice, 1000, 0) == 0
    assert quota.record(alice, 500, 0) == 5000
    assert quota.record(alice, 0, 11_000) == 0


def test_the_clients_of_a_user_share_its_quota_and_others_have_none() -> None:
    quota = rate_quota(ALICE, 100)
    assert quota.record(Client("alice", "one"), 1000, 0) == 0
    assert quota.record(Client("alice", "two"), 100, 0) == 1000
    assert quota.record(Client("bob", "one"), 1 << 40, 0) == 0


def test_each_client_has_the_default_for_itself() -> None:
    quota = rate_quota(EACH_CLIENT, 100)
    assert quota.record(Client("alice", "one"), 1000, 0) == 0
    assert quota.record(Client("alice", "two"), 1000, 0) == 0
    assert quota.record(Client("bob", "one"), 1, 0) == 10, "only the client id counts"


def test_a_changed_quota_applies_to_what_was_used_already() -> None:
    quota, alice = rate_quota(ALICE, 1000), Client("alice", "app")
    assert quota.record(alice, 10_000, 0) == 0
    quota.set(ALICE, 500)
    assert quota.record(alice, 0, 0) == 10_000
    quota.set(ALICE, None)
    assert quota.record(alice, 1 << 40, 0) == 0


def test_the_pause_for_request_time_is_bounded_by_a_window() -> None:
    quota = rate_quota(ALICE, 1, throttle_ms_max=1000)
    assert quota.record(Client("alice", ""), 1e6, 0) == 1000


def test_more_than_all_full_windows_allow_always_pauses() -> None:
    quota, alice = rate_quota(ALICE, 100), Client("alice", "")
    assert quota.at_once_max(alice) == 1000
    assert quota.at_once_max(Client("bob", "")) is None


def test_mutations_are_refused_only_when_the_bucket_is_overdrawn() -> None:
    quota, alice = MutationQuota(WINDOWS), Client("alice", "")
    quota.set(ALICE, 2)
    assert quota.admit(alice, 30, 0) == 0, "a burst may overdraw the 22 tokens"
    assert quota.admit(alice, 1, 0) == 4000
    assert quota.admit(alice, 1, 3999) > 0
    assert quota.admit(alice, 1, 4000) == 0
    assert quota.admit(Client("bob", ""), 1 << 30, 0) == 0


def test_old_clients_pause_instead() -> None:
    quota, alice = MutationQuota(WINDOWS), Client("alice", "")
    quota.set(ALICE, 2)
    assert quota.record(alice, 30, 0) == 4000
    assert quota.record(alice, 2, 0) == 5000


def test_rates_are_forgotten_an_hour_after_their_last_use() -> None:
    measures = Measures(Rate)
    measures.use(Client("idle", ""), 0)
    measures.use(Client("busy", ""), 0)
    measures.use(Client("busy", ""), IDLE_MS_MAX - 1)
    measures.use(Client("new", ""), IDLE_MS_MAX)
    assert [client.user for client, _ in measures.recent(9)] == ["new", "busy"]


def test_beyond_the_bound_the_rate_that_was_used_least_recently_is_forgotten() -> None:
    measures = Measures(Rate, count_max=2)
    kept = measures.use(Client("a", ""), 0)
    for client in "bac":
        measures.use(Client(client, ""), 0)
    assert len(measures) == 2
    assert measures.use(Client("a", ""), 0) is kept


def test_without_quotas_requests_need_not_look() -> None:
    quotas = ClientQuotas(WINDOWS, mutation_windows=WINDOWS)
    assert not quotas.are_set
    quotas.set(ALICE, "request_percentage", 50.0)
    assert quotas.are_set
    quotas.set(ALICE, "request_percentage", None)
    assert not quotas.are_set


def test_an_unknown_quota_is_no_quota_of_clients() -> None:
    with pytest.raises(ValueError, match="byte_rate"):
        ClientQuotas(WINDOWS, mutation_windows=WINDOWS).set(ALICE, "byte_rate", 1)
