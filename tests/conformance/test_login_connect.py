"""Kafka Connect's worker and its connectors connect by TLS and a login; with a wrong one it says why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.client_access import Access, Accesses
from tests.harness.connect_worker import ConnectWorker
from tests.harness.group_run import until
from tests.harness.secured_listeners import (
    MECHANISMS,
    REAUTH_MS,
    SecuredListeners,
    logins_again,
)

LINES = "".join(f"line {number}\n" for number in range(50))


def worker_of(folder: Path, access: Access) -> ConnectWorker:
    try:
        token = folder / "token"
        # Without this permission the Java client reads no token from a file.
        permission = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"
        return ConnectWorker(folder, access.address, access.java(token), options=[permission])
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "MUTUAL"])
def test_a_file_is_copied_through_a_topic(
    secured: SecuredListeners, tmp_path: Path, mechanism: str
) -> None:
    source, copied, topic = tmp_path / "source", tmp_path / "copied", f"lines-{mechanism}"
    source.write_text(LINES)
    with worker_of(tmp_path, Accesses(secured).right(mechanism)) as worker:
        kind = "connector.class"
        worker.configure(
            f"in-{mechanism}", {kind: "FileStreamSource", "file": str(source), "topic": topic}
        )
        worker.configure(
            f"out-{mechanism}", {kind: "FileStreamSink", "file": str(copied), "topics": topic}
        )
        until_copied(LINES, copied, worker)


def test_a_copy_outlives_sessions_and_a_change_of_the_certificate(
    secured_process: tuple[BrokerProcess, SecuredListeners], tmp_path: Path
) -> None:
    process, secured = secured_process
    before = logins_again(process)
    source, copied, lines = tmp_path / "source", tmp_path / "copied", LINES
    source.write_text(lines)
    with worker_of(tmp_path, Accesses(secured).right("SCRAM-SHA-512", "SHORT")) as worker:
        kind, topic = "connector.class", "lines-again"
        worker.configure("in", {kind: "FileStreamSource", "file": str(source), "topic": topic})
        worker.configure("out", {kind: "FileStreamSink", "file": str(copied), "topics": topic})
        for turn in ("before", "after"):
            end_s = time.monotonic() + 2 * REAUTH_MS / 1000
            while time.monotonic() < end_s:
                lines += f"{turn} {time.monotonic()}\n"
                with source.open("a") as file:
                    file.write(lines.splitlines(keepends=True)[-1])
                until_copied(lines, copied, worker)
            if turn == "before":
                secured.change_certificate("connect")
    assert logins_again(process) > before


def until_copied(lines: str, copied: Path, worker: ConnectWorker) -> None:
    until(
        "the copy is complete",
        lambda: copied.exists() and copied.read_text() == lines,
        worker.tail,
    )


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (
            "a wrong password by SCRAM-SHA-512",
            "SaslAuthenticationException: Authentication failed during authentication due to invalid"
            " credentials with SASL mechanism SCRAM-SHA-512",
        ),
        (
            "a broker's certificate for another host",
            "No subject alternative names matching IP address 127.0.0.1 found",
        ),
    ],
)
def test_a_worker_that_is_refused_ends_and_says_why(
    secured: SecuredListeners, tmp_path: Path, mistake: str, text: str
) -> None:
    log = worker_of(tmp_path, Accesses(secured).wrong()[mistake]).failed_start()

    assert text in log
    assert "wrong" not in log.replace(str(tmp_path), "")
