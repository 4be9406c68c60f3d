"""A broker's process that is fenced and lifted by `kompakt configs`: it starts again within itself."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cli.base.command_end import EXIT_UNREACHABLE
from server.config.standby_config import FENCED_BY
from tests.harness.broker_process import (
    CHECKOUT,
    BrokerProcess,
    accepts_connections,
    free_ports,
    samples,
)
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.typed_commands import TypedCommands, page_blocks
from tests.server.test_broker import RECORDS, get, values_of

SECONDS_MAX = 60.0
(PAGE,) = [
    each for each in page_blocks(CHECKOUT / "docs" / "standby.md", "text") if FENCED_BY in each
]
SET, UNSET = PAGE.splitlines()
"""The commands that the page for operators gives."""


class Operated:
    """A broker with an internal listener, and the operator's shell."""

    def __init__(self, folder: Path) -> None:
        self.process = BrokerProcess(folder)
        (self.internal,) = free_ports(1)
        self.process.overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.process.port},INTERNAL://127.0.0.1:{self.internal}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        self.typed = TypedCommands(self.process)

    def do(self, line: str) -> subprocess.CompletedProcess[str]:
        """Type a line of the page."""
        prompt, program, *arguments = line.replace(":9095", f":{self.internal}").split()
        assert (prompt, program) == ("$", "kompakt")
        return self.typed.run(*arguments)

    def run(self, line: str) -> None:
        """Type a line of the page, which must succeed."""
        done = self.do(line)
        assert done.returncode == 0, done

    @property
    def serves_clients(self) -> bool:
        return accepts_connections(self.process.port)

    def ready(self) -> tuple[int, str]:
        """Returns the answer of /health/ready; 0 while the HTTP endpoint is closed."""
        try:
            return get(self.process, "/health/ready")
        except ConnectionError:
            return 0, ""


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    operated = Operated(tmp_path)
    with operated.process:
        yield operated


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def fence(operated: Operated) -> None:
    operated.run(SET)
    wait_for(
        "the fenced broker", lambda: operated.ready()[0] == 503 and "fenced" in operated.ready()[1]
    )


def test_it_is_fenced_and_serves_again_without_another_process(operated: Operated) -> None:
    process = operated.process
    create_topic(process.bootstrap_servers, "orders")
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS)
    pid = process.pid

    fence(operated)

    assert operated.ready() == (503, "this broker is fenced: broker-b has taken over\n")
    assert not operated.serves_clients
    assert get(process, "/health/live") == (200, "alive\n")
    assert samples(process.metrics(), "kompakt_broker_fenced") == [1]
    inside = ConfluentClient().consume(f"127.0.0.1:{operated.internal}", ["orders"])
    assert [value for *_, value in inside] == [value for _, value in RECORDS]

    operated.run(UNSET)
    wait_for("the broker that serves", lambda: operated.ready()[0] == 200)

    assert process.pid == pid
    assert samples(process.metrics(), "kompakt_broker_fenced") == [0]
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS[:1])
    assert len(values_of(process, "orders")) == len(RECORDS) + 1
    log = process.log_path.read_text()
    assert log.count("starts: node 1, data in") == 1
    assert log.count("stopped; starting again because broker.fenced.by has changed") == 2
    assert "Traceback" not in log


def test_the_audit_log_goes_on(operated: Operated) -> None:
    audit = operated.process.data_dir / "audit.log"
    fence(operated)
    operated.run(UNSET)
    wait_for("the broker that serves", lambda: operated.ready()[0] == 200)

    lines = audit.read_text().splitlines()
    assert sum("IncrementalAlterConfigs" in line for line in lines) == 2


def test_a_kill_keeps_the_fence(operated: Operated) -> None:
    process = operated.process
    create_topic(process.bootstrap_servers, "orders")
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS)
    fence(operated)

    process.kill()
    process.spawn()

    wait_for(
        "the fenced broker", lambda: operated.ready()[0] == 503 and "fenced" in operated.ready()[1]
    )
    assert not operated.serves_clients
    operated.run(UNSET)
    wait_for("the broker that serves", lambda: operated.ready()[0] == 200)
    assert len(values_of(process, "orders")) == len(RECORDS)


def test_a_signal_in_between_stops_it_cleanly(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    process = operated.process
    process.start()
    operated.run(SET)

    assert process.stop() == 0

    assert (process.data_dir / ".clean-shutdown").exists()
    assert "Traceback" not in process.log_path.read_text()
    process.spawn()
    wait_for(
        "the fenced broker", lambda: operated.ready()[0] == 503 and "fenced" in operated.ready()[1]
    )
    assert process.stop() == 0


def test_a_new_start_that_fails_ends_the_process_with_the_reason(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    process = operated.process
    process.start()
    fence(operated)
    with closing(socket.create_server(("127.0.0.1", process.port))):
        done = operated.do(UNSET)

        assert process._process is not None
        assert process._process.wait(timeout=SECONDS_MAX) == 1
    assert done.returncode in (0, EXIT_UNREACHABLE), "it may have answered both requests before"

    process._process = None
    (line,) = [
        line for line in process.log_path.read_text().splitlines() if line.startswith("kompakt: ")
    ]
    assert line.endswith("Address already in use")
    with process:
        assert operated.ready() == (200, "ready\n")
