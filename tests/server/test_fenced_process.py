"""A broker's process that is fenced and lifted by `kompakt configs`: it starts again within itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cli.base.command_end import EXIT_UNREACHABLE
from tests.harness.broker_process import BrokerProcess, accepts_connections, free_ports, samples
from tests.harness.clients import ConfluentClient, KafkaPythonClient, create_topic
from tests.harness.typed_commands import TypedCommands
from tests.server.test_broker import RECORDS, get, values_of

SECONDS_MAX = 60.0
SET = "configs set --broker broker.fenced.by=broker-b"
UNSET = "configs unset --broker broker.fenced.by"


class Pair:
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

    def run(self, command: str) -> None:
        done = self.typed.run(*command.split(), "-b", f"127.0.0.1:{self.internal}")
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
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    with pair.process:
        yield pair


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def fence(pair: Pair) -> None:
    pair.run(SET)
    wait_for("the fenced broker", lambda: pair.ready()[0] == 503 and "fenced" in pair.ready()[1])


def test_it_is_fenced_and_serves_again_without_another_process(pair: Pair) -> None:
    process = pair.process
    create_topic(process.bootstrap_servers, "orders")
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS)
    pid = process.pid

    fence(pair)

    assert pair.ready() == (503, "this broker is fenced: broker-b has taken over\n")
    assert not pair.serves_clients
    assert get(process, "/health/live") == (200, "alive\n")
    assert samples(process.metrics(), "kompakt_broker_fenced") == [1]
    # librdkafka obeys the answer that tells clients to bootstrap again.
    inside = KafkaPythonClient().consume(f"127.0.0.1:{pair.internal}", ["orders"])
    assert [value for *_, value in inside] == [value for _, value in RECORDS]

    pair.run(UNSET)
    wait_for("the broker that serves", lambda: pair.ready()[0] == 200)

    assert process.pid == pid
    assert samples(process.metrics(), "kompakt_broker_fenced") == [0]
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS[:1])
    assert len(values_of(process, "orders")) == len(RECORDS) + 1
    log = process.log_path.read_text()
    assert log.count("starts: node 1, data in") == 1
    assert log.count("stopped; starting again because broker.fenced.by has changed") == 2
    assert "Traceback" not in log


def test_the_audit_log_goes_on(pair: Pair) -> None:
    audit = pair.process.data_dir / "audit.log"
    fence(pair)
    pair.run(UNSET)
    wait_for("the broker that serves", lambda: pair.ready()[0] == 200)

    lines = audit.read_text().splitlines()
    assert sum("IncrementalAlterConfigs" in line for line in lines) == 2


def test_a_kill_keeps_the_fence(pair: Pair) -> None:
    process = pair.process
    create_topic(process.bootstrap_servers, "orders")
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, RECORDS)
    fence(pair)

    process.kill()
    process.spawn()

    wait_for("the fenced broker", lambda: pair.ready()[0] == 503 and "fenced" in pair.ready()[1])
    assert not pair.serves_clients
    pair.run(UNSET)
    wait_for("the broker that serves", lambda: pair.ready()[0] == 200)
    assert len(values_of(process, "orders")) == len(RECORDS)


def test_a_signal_in_between_stops_it_cleanly(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    process = pair.process
    process.start()
    pair.run(SET)

    assert process.stop() == 0

    assert (process.data_dir / ".clean-shutdown").exists()
    assert "Traceback" not in process.log_path.read_text()
    process.spawn()
    wait_for("the fenced broker", lambda: pair.ready()[0] == 503 and "fenced" in pair.ready()[1])
    assert process.stop() == 0


def test_a_new_start_that_fails_ends_the_process_with_the_reason(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    process = pair.process
    process.start()
    fence(pair)
    with closing(socket.create_server(("127.0.0.1", process.port))):
        done = pair.typed.run(*UNSET.split(), "-b", f"127.0.0.1:{pair.internal}")

        assert process._process is not None
        assert process._process.wait(timeout=SECONDS_MAX) == 1
    assert done.returncode == EXIT_UNREACHABLE
    assert "has made the change and started again; it no longer answers" in done.stderr

    process._process = None
    (line,) = [
        line for line in process.log_path.read_text().splitlines() if line.startswith("kompakt: ")
    ]
    assert line.endswith("Address already in use")
    with process:
        assert pair.ready() == (200, "ready\n")
