"""How fast connections may be created: by all, by listener, by address."""

from __future__ import annotations

import pytest

from server.security.quotas.connection_rates import AT_ONCE, WAIT_MS_MAX, ConnectionRates, Welcome
from server.security.quotas.quota_entity import INT_MAX
from server.security.quotas.rates import Windows

WINDOWS = Windows(count=11, seconds=1)
NO_BOUND = INT_MAX


def rates(broker: int = NO_BOUND, **listeners: int) -> ConnectionRates:
    found = ConnectionRates(WINDOWS)
    found.configure(broker, listeners)
    return found


def welcomes(
    found: ConnectionRates, count: int, listener: str = "A", now_ms: int = 0
) -> list[Welcome]:
    return [found.welcome(listener, "10.0.0.7", now_ms) for _ in range(count)]


def test_beyond_a_burst_connections_are_served_at_the_rate() -> None:
    found = rates(2)
    first = welcomes(found, 25)
    assert first[:22] == [AT_ONCE] * 22, "what the windows allow at once"
    assert [each.wait_ms for each in first[22:]] == [500, 1000, 1500]
    assert welcomes(found, 1, now_ms=1500) == [Welcome(500, is_refused=False)]
    assert welcomes(found, 1, now_ms=60_000) == [AT_ONCE]


def test_a_connection_that_would_wait_too_long_is_refused_and_does_not_count() -> None:
    found = rates(1)
    first = welcomes(found, 11 + WAIT_MS_MAX // 1000)
    assert first[-1] == Welcome(WAIT_MS_MAX, is_refused=False)
    assert welcomes(found, 5) == [Welcome(0, is_refused=True)] * 5
    assert welcomes(found, 1, now_ms=1000) == [Welcome(WAIT_MS_MAX, is_refused=False)]


def test_a_listener_has_its_own_rate_besides_the_brokers() -> None:
    found = rates(10, A=1)
    assert welcomes(found, 12, "A")[-1] == Welcome(1000, is_refused=False)
    assert welcomes(found, 98, "B") == [AT_ONCE] * 98
    assert welcomes(found, 1, "B") == [Welcome(100, is_refused=False)], "A's count for the broker"


def test_a_rate_of_zero_serves_no_connection() -> None:
    assert welcomes(rates(0), 1) == [Welcome(0, is_refused=True)]


def test_an_address_beyond_its_rate_is_refused_after_a_pause_of_a_window_at_most() -> None:
    found = rates()
    found.set_ip("10.0.0.7", 1.0)
    assert welcomes(found, 10) == [AT_ONCE] * 10
    assert welcomes(found, 1) == [Welcome(1000, is_refused=True)]
    assert found.welcome("A", "10.0.0.8", 0) == AT_ONCE
    assert welcomes(found, 1, now_ms=12_000) == [AT_ONCE], "refused ones were not counted"


def test_each_address_has_the_default_for_itself_unless_it_has_its_own_rate() -> None:
    found = rates()
    found.set_ip(None, 1.0)
    found.set_ip("::ffff:10.0.0.7", 5.0)
    assert welcomes(found, 50) == [AT_ONCE] * 50
    for ip in ("10.0.0.8", "10.0.0.9"):
        assert [found.welcome("A", ip, 0).is_refused for _ in range(11)] == [False] * 10 + [True]
    found.set_ip("10.0.0.7", None)
    assert welcomes(found, 1)[0].is_refused
    found.set_ip(None, None)
    assert welcomes(found, 1) == [AT_ONCE]


@pytest.mark.parametrize("change", ["broker", "listener", "ip"])
def test_without_bounds_new_connections_need_not_look(change: str) -> None:
    found = rates()
    assert not found.are_bound
    if change == "ip":
        found.set_ip("::1", 3.0)
        assert found.are_bound
        found.set_ip("::1", None)
    else:
        found.configure(
            5 if change == "broker" else NO_BOUND, {"A": 4} if change == "listener" else {}
        )
        assert found.are_bound
        found.configure(NO_BOUND, {})
    assert not found.are_bound


def test_a_changed_rate_keeps_the_count() -> None:
    found = rates(1)
    welcomes(found, 11)
    found.configure(2, {})
    assert welcomes(found, 1) == [Welcome(500, is_refused=False)]
