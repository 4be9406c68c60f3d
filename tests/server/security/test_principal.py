"""Principals and their text."""

from __future__ import annotations

import pytest

from server.security.principal import ANONYMOUS, Principal, user


def test_a_principal_is_read_from_the_text_that_it_writes() -> None:
    for principal in (ANONYMOUS, user("alice"), user("CN=a:b,O=c"), Principal("Group", "")):
        assert Principal.parse(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_a_text_without_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="User:name"):
        Principal.parse(text)
