"""Commands about the cleaner log in to the HTTP endpoint as the user of their access."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from cli.base.command_end import CommandFailed
from cli.compact.http_login import authorization
from server.client.access import Login

ALICE = Login(mechanism="SCRAM-SHA-256", user="alice", password="päss:word")
HTTPS = "https://kafka.example:9644"


def test_a_user_logs_in_with_a_password() -> None:
    scheme, _, shown = authorization(ALICE, HTTPS)["Authorization"].partition(" ")

    assert (scheme, base64.b64decode(shown).decode()) == ("Basic", "alice:päss:word")


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    login = Login(mechanism="OAUTHBEARER", token_file=tmp_path / "token")

    assert authorization(login, HTTPS) == {"Authorization": "Bearer a.b.c"}


def test_without_a_login_nothing_is_sent() -> None:
    assert authorization(None, "http://kafka.example:9644") == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_password_may_stay_on_this_machine_without_tls(host: str) -> None:
    assert authorization(ALICE, f"http://{host}:9644")


@pytest.mark.parametrize(
    "url", ["http://kafka.example:9644", "http://192.0.2.1:9644", "kafka:9644"]
)
def test_a_password_does_not_leave_this_machine_without_tls(url: str) -> None:
    with pytest.raises(CommandFailed, match="without encryption: use https://"):
        authorization(ALICE, url)
