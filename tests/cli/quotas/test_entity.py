"""Whom the options of `kompakt quotas` name."""

from __future__ import annotations

import pytest

from cli.base.command_end import CommandFailed
from cli.quotas.entity import entity_of, entity_text


def named(**options: str) -> dict[str, str | None]:
    defaults = options.pop("default", "").split()
    given: dict[str, str | None] = dict.fromkeys(("user", "client_id", "ip")) | options
    return dict(entity_of(**given, defaults=defaults))


def test_names_and_defaults_are_the_parts() -> None:
    assert named() == {}
    assert named(user="alice", client_id="app") == {"user": "alice", "client-id": "app"}
    assert named(user="alice", default="client-id") == {"user": "alice", "client-id": None}
    assert named(default="ip") == {"ip": None}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"default": "team"}, "--default team: write user, client-id, ip"),
        ({"user": "alice", "default": "user"}, "give either --of-user or --default user"),
    ],
)
def test_what_names_nothing_is_refused(options: dict[str, str], fault: str) -> None:
    with pytest.raises(CommandFailed, match=fault):
        named(**options)


def test_people_read_the_user_first() -> None:
    assert entity_text({"client-id": None, "user": "alice"}) == "user alice, default client-id"
