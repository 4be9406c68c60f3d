"""A real `kompakt standby` in its own process: start, wait until it is current, kill, stop, promote.

`StandbyProcess` follows the metadata and the coordinators' topics only, `WholeStandby` a whole broker.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from server.metadata.log import read_machine
from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import STOP_SECONDS_MAX, free_ports
from tests.harness.forked_python import ForkedProgram, start_python

CURRENT_SECONDS_MAX = 300.0
STEP_SECONDS = 0.02

Json = dict[str, Any]


class StandbyProcess:
    """One standby with its directory and its output in `folder`."""

    __slots__ = ("_process", "arguments", "environment", "folder", "http_port", "leader")

    def __init__(
        self,
        folder: Path,
        leader: str,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Constant after construction, across restarts too.
        self.folder = folder
        self.leader = leader
        self.arguments = tuple(arguments)
        self.environment = environment
        (self.http_port,) = free_ports(1)
        # State.
        self._process: ForkedProgram | subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / "copy"

    @property
    def output_path(self) -> Path:
        return self.folder / "standby.out"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    def command(self) -> list[str]:
        """Returns the command with which a user would start it."""
        return [
            sys.executable, "-m", "cli", "standby", "--of", self.leader, "--data",
            str(self.data_dir), "--http", self.address, "--json", *self.follows(), *self.arguments,
        ]  # fmt: skip

    def follows(self) -> Sequence[str]:
        """Returns the options that say what it follows."""
        return ("--metadata-only",)

    def start(self) -> None:
        """Start the process; its output is appended to a file in `folder`."""
        assert self._process is None, "it is already running"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.output_path.open("ab") as output:
            self._process = start_python(
                self.command(),
                ("cli.commands", "cli.standby.run", "tests.harness.whole_broker"),
                stdout=output,
                stderr=output,
                environment=self.environment,
            )

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait until it ends. Returns the exit code."""
        assert self._process is not None
        code = self._process.wait(timeout=STOP_SECONDS_MAX)
        self._process = None
        return code

    def status(self) -> Json | None:
        """Returns what it says over HTTP; None if it does not answer."""
        return asked(self.address, "/v1/standby")

    def wait_until(self, holds: Callable[[Json], bool]) -> Json:
        """Wait until its status is so. Returns it."""
        deadline = time.monotonic() + CURRENT_SECONDS_MAX
        while True:
            found = self.status()
            if found is not None and holds(found):
                return found
            process = self._process
            assert process is not None, "another thread has killed it"
            assert process.poll() is None, f"it ended{self.tail()}"
            assert time.monotonic() < deadline, f"{found}{self.tail()}"
            time.sleep(STEP_SECONDS)

    def wait_until_at(self, end: int) -> Json:
        """Wait until it is current and has all entries below `end`."""
        return self.wait_until(lambda it: it["state"] == "current" and it["end"] >= end)

    def events(self) -> list[Json]:
        """Returns the lines that it has printed, all starts together."""
        lines = self.output_path.read_text().splitlines() if self.output_path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def digest(self) -> int:
        """Returns the digest of the state in its directory, while it is stopped."""
        return digest_in(self.data_dir / "metadata")

    def tail(self) -> str:
        """Returns the end of the output, for messages."""
        lines = self.output_path.read_text(errors="replace").splitlines()[-15:]
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
        assert self.stop() == 0, self.tail()


class WholeStandby(StandbyProcess):
    """A standby of a whole broker. Once it is promoted, it serves clients at `bootstrap_servers`."""

    __slots__ = ("_data_dir", "broker_http_port", "overrides", "port")

    def __init__(
        self,
        folder: Path,
        leader: str,
        overrides: Mapping[str, object] | None = None,
        *,
        rejoins: Path | None = None,
    ) -> None:
        """
        Args:
            rejoins: the data directory of a broker from which `leader` has taken over.
        """
        arguments = () if rejoins is None else ("--rejoin",)
        super().__init__(folder, leader, arguments=arguments)
        self._data_dir = rejoins or folder / "copy"
        self.port, self.broker_http_port = free_ports(2)
        self.overrides = dict(overrides or {})

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def follows(self) -> Sequence[str]:
        properties = {
            "node.id": 1 if self.arguments else 2,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "inter.broker.listener.name": "PLAINTEXT",
            "http.listener": f"127.0.0.1:{self.broker_http_port}",
            **self.overrides,
        }
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return ("--config", str(config))

    def wait_until_ready(self) -> Json:
        """Wait until it has what the broker had a moment ago."""
        return self.wait_until(lambda it: it["not_ready"] is None and it["mirrors"] is not None)

    def wait_until_level(self, *, copying: int) -> Json:
        """Wait until it has all that the broker had at its last answers, of so many partitions."""
        return self.wait_until(
            lambda it: (
                it["state"] == "current"
                and it["mirrors"]["by_state"].get("copying") == copying
                and it["coordinators_reason"] is None
                and not it["lag"]
                and not it["mirrors"]["lag"]
                and not any(each["lag"] or each["waiting"] for each in it["coordinators"])
            )
        )

    def promote(self, *, force: bool = False, wait_seconds: float = 60.0) -> tuple[int, Json]:
        """Ask it to take over, once it answers. Returns the HTTP status and the answer."""
        self.wait_until(lambda it: "starting" not in it["mirrors"]["reason"])
        connection = http.client.HTTPConnection(self.address, timeout=CURRENT_SECONDS_MAX)
        body = json.dumps({"force": force, "wait_seconds": wait_seconds})
        try:
            connection.request("POST", "/v1/standby/promotion", body=body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def asked(address: str, path: str) -> Json | None:
    """Returns the JSON at a path; None if nothing answers."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    assert response.status == 200, body
    found: Json = json.loads(body)
    return found


def digest_in(directory: Path) -> int:
    """Returns the digest of the state in a directory of metadata that no process uses."""
    return read_machine(ReadOnlyFileSystem(), str(directory)).digest()
