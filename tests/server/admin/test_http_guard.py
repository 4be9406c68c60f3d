"""A web page in a browser cannot control the broker."""

from __future__ import annotations

import pytest

from server.admin.http_guard import refusal

OURS = frozenset({"broker.example"})


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9644", "localhost:9644", "[::1]:9644", "10.0.0.7", "Broker.example:9644"]
)
def test_programs_that_call_the_broker_by_its_name_are_served(host: str) -> None:
    assert refusal(host, None, OURS) is None


def test_our_own_origin_is_served() -> None:
    assert refusal("127.0.0.1:9644", "http://127.0.0.1:9644", OURS) is None


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:8000", "null", "http://["]
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert "web page" in (refusal("127.0.0.1:9644", origin, OURS) or "")


@pytest.mark.parametrize("host", [None, "", "evil.example:9644", "[::1", "127.0.0.1.evil.example"])
def test_a_foreign_name_rebound_to_our_address_is_refused(host: str | None) -> None:
    assert "not a name of this broker" in (refusal(host, None, OURS) or "")
