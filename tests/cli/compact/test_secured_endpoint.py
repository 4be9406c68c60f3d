"""`kompakt compact` with a broker whose HTTP endpoint has TLS and logins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.config.authorization_config import AUTHORIZERS
from tests.harness.broker_process import BrokerProcess
from tests.harness.certificates import Certificates

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob-secret";'
)


def command(process: BrokerProcess, authority: Path, user: str, password: str) -> tuple[int, str]:
    """Returns the exit code and the output of `kompakt compact status` as a user."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "compact", "status"),
            *("--url", f"https://127.0.0.1:{process.http_port}"),
            *("--tls-ca", str(authority), "--user", user),
        ],
        env=os.environ | {"KOMPAKT_PASSWORD": password},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def process(tmp_path: Path) -> BrokerProcess:
    certificates = Certificates(tmp_path / "certificates")
    process = BrokerProcess(tmp_path / "broker")
    process.overrides |= {
        "http.listener": f"https://127.0.0.1:{process.http_port}",
        "http.authentication": "basic",
        "ssl.keystore.location": str(certificates.broker()),
        "listener.name.http.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:alice",
    }
    return process


def test_a_user_sees_the_cleaner_if_the_acls_allow_it(
    process: BrokerProcess, tmp_path: Path
) -> None:
    authority = tmp_path / "certificates" / "authority.pem"
    with process:
        allowed = command(process, authority, "alice", "alice-secret")
        denied = command(process, authority, "bob", "bob-secret")
        refused = command(process, authority, "alice", "wrong")

    assert allowed[0] == 0
    assert denied[0] == 1
    assert "User:bob may not Describe Cluster:kafka-cluster" in denied[1]
    assert refused[0] == 1
    assert "wrong user name or password" in refused[1]
