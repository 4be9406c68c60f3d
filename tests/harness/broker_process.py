"""A real broker in its own process: start, wait until it is ready, kill, restart, stop.

Kompakt keeps no state outside its data directory, so a `BrokerProcess` may be killed with SIGKILL at
any moment and started again on the same ports and data.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.harness.forked_python import ForkedProgram, start_python
from tests.harness.wrong_threads import WRONG_THREAD

CHECKOUT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0

WORKERS_MAX = 16
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
WORKERS_PORTS = range(15_000, 32_000)[WORKER::WORKERS_MAX]
_given: deque[int] = deque(maxlen=len(WORKERS_PORTS) // 2)
"""The ports that were returned last: their brokers may be down for a moment."""


class BrokerFailed(AssertionError):
    """The process ended or did not become ready; the message contains the end of its log."""


class BrokerProcess:
    """One broker on free ports of 127.0.0.1, with its data and its log in `folder`.

    As a context manager it asserts a clean stop: SIGTERM ends it with code 0, and no thread has called
    what belongs to another.
    """

    __slots__ = ("_process", "folder", "http_port", "overrides", "port")

    def __init__(self, folder: Path, overrides: Mapping[str, object] | None = None) -> None:
        # Constant after construction, across restarts too.
        self.folder = folder
        self.port, self.http_port = free_ports(2)
        self.overrides = dict(overrides or {})
        # State.
        self._process: ForkedProgram | subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        return self.folder / "broker.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        """Returns the command with which a user would start it, with this broker's properties."""
        properties: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "http.listener": f"127.0.0.1:{self.http_port}",
            "log.dirs": self.data_dir,
            **self.overrides,
        }
        pairs = [f"--override={name}={value}" for name, value in properties.items()]
        return [sys.executable, "-m", "cli", "serve", *pairs]

    def start(self) -> None:
        """Start the process and wait until it answers clients.

        Raises:
            BrokerFailed: it ended, or was not ready in time.
        """
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start the process; its output is appended to the log in `folder`."""
        assert self._process is None, "it is already running"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = start_python(
                self.command(), ("tests.harness.whole_broker",), stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Wait until its listeners accept connections: from then on it answers requests.

        The HTTP listener is the last to open.
        """
        deadline = time.monotonic() + READY_SECONDS_MAX
        listener = str(self.overrides.get("http.listener", self.http_port))
        ports = [self.port, self.http_port] if str(self.http_port) in listener else [self.port]
        while not all(map(accepts_connections, ports)):
            assert self._process is not None
            if self._process.poll() is not None:
                raise BrokerFailed(f"the broker ended with {self._process.returncode}{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"not ready after {READY_SECONDS_MAX} s{self.tail()}")
            time.sleep(0.01)

    def kill(self) -> None:
        """Send SIGKILL. Data not yet handed to the operating system is lost."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """Send SIGTERM, the normal way to stop a broker. Returns its exit code.

        Raises:
            BrokerFailed: it did not end in time (then it is killed).
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"SIGTERM did not end it in time{self.tail()}") from None
        self._process = None
        return code

    def restart(self) -> None:
        """Stop cleanly and start again on the same data."""
        code = self.stop()
        if code != 0:
            raise BrokerFailed(f"SIGTERM ended it with {code}{self.tail()}")
        self.start()

    def metrics(self) -> str:
        """Returns the current content of `/metrics`."""
        return scrape(f"127.0.0.1:{self.http_port}")

    def tail(self) -> str:
        """Returns the end of the log, for messages."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()[-25:]
        return "\n" + "\n".join(lines)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._process is None:
            return
        if kind is not None:
            self.kill()
            return
        code = self.stop()
        assert code == 0, f"SIGTERM ended it with {code}{self.tail()}"
        assert WRONG_THREAD not in self.log_path.read_text(errors="replace"), self.log_path


def free_ports(count: int) -> tuple[int, ...]:
    """Returns free ports of 127.0.0.1, all different, and not among those that were returned lately.

    They are below the range for outgoing connections, so that no client gets a broker's port while the
    broker is down, and each worker of the tests has its own, so that no other broker gets it.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.choice(WORKERS_PORTS)
        if port not in _given and may_listen(port):
            found.append(port)
            _given.append(port)
    return tuple(found)


def may_listen(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def scrape(address: str, path: str = "/metrics") -> str:
    """Returns the body of a GET; `address` is host:port.

    Waits for the HTTP endpoint, which a broker opens a moment after its Kafka listener.
    """
    connection = http.client.HTTPConnection(address, timeout=10)
    connect_when_open(connection)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
    finally:
        connection.close()
    assert response.status == 200, f"{address}{path} answered {response.status}: {body[:200]}"
    return body


def connect_when_open(connection: http.client.HTTPConnection) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            connection.connect()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str, name: str, **labels: str) -> list[float]:
    """Returns the values of a metric's series that carry at least these labels."""
    found = []
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match is None or match["name"] != name:
            continue
        if labels.items() <= dict(LABEL.findall(match["labels"] or "")).items():
            found.append(float(match["value"]))
    return found
