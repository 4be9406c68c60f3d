"""A worker of Kafka Connect in distributed mode: start, query over its REST API, kill, stop.

A worker keeps all its state in three topics, so a killed one can be started again on the same port.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.spark.jars import jars
from tests.harness.broker_process import free_ports
from tests.harness.group_run import until
from tests.harness.java_program import SOURCES, java_command

PINS = SOURCES / "kafka-connect-4.3"
MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPICS = ("connect-configs", "connect-offsets", "connect-status")
"""The topics with a worker's state, with the names from Kafka's example configuration."""
TERMINATED = 143
"""The exit code of a JVM that was ended by SIGTERM."""
STOP_SECONDS_MAX = 20.0
START_SECONDS_MAX = 120.0


class ConnectWorker:
    """A worker that uses one broker; its configuration and its log are in `folder`.

    `security` are the properties with which its clients connect, `options` those of the JVM.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        security: Mapping[str, str] | None = None,
        *,
        options: Sequence[str] = (),
    ) -> None:
        (self._port,) = free_ports(1)
        java, *words = java_command(MAIN_CLASS, jars(PINS))
        self._command = [java, *options, *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "worker.log"
        self._properties = folder / "worker.properties"
        rows = worker_properties(bootstrap, self._port) | for_all_clients(security or {})
        self._properties.write_text("".join(f"{n}={value}\n" for n, value in rows.items()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        """Start the process and wait until it answers. It has not joined its group yet."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until("the worker answers", self._answers, self.tail)

    def failed_start(self) -> str:
        """Start the process, and wait until it has given up. Returns its log."""
        with self._log.open("ab") as log:
            command = [*self._command, str(self._properties)]
            subprocess.run(command, stdout=log, stderr=log, timeout=START_SECONDS_MAX, check=False)
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Send SIGTERM: the worker stops its connectors and leaves its group."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(STOP_SECONDS_MAX) == TERMINATED, self.tail()
        self._process = None

    def tail(self) -> str:
        """Returns the end of its log, for messages."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Create the connector, or change its configuration."""
        self._request("PUT", f"/connectors/{connector}/config", config)

    def states(self, connector: str) -> list[str]:
        """Returns the states of the connector and its tasks; empty while it has no task."""
        status = self._asked(f"/connectors/{connector}/status") or {"tasks": []}
        tasks = [task["state"] for task in status["tasks"]]
        return [status["connector"]["state"], *tasks] if tasks else []

    def position(self, connector: str) -> int:
        """Returns the stored offset of a connector with one file or one partition."""
        found = self._asked(f"/connectors/{connector}/offsets") or {"offsets": []}
        return max((max(each["offset"].values()) for each in found["offsets"]), default=0)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.tail()
        return self._asked("/connectors") is not None

    def _asked(self, path: str) -> Any:
        """Returns the answer to a GET; None while the worker is starting or rebalancing."""
        try:
            return self._request("GET", path)
        except OSError:
            return None

    def _request(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


def worker_properties(bootstrap: str, port: int) -> dict[str, object]:
    """Returns a configuration that detects failures quickly and commits often."""
    stores = {"config": TOPICS[0], "offset": TOPICS[1], "status": TOPICS[2]}
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-cluster",
        "listeners": f"http://127.0.0.1:{port}",
        **{f"{store}.storage.topic": topic for store, topic in stores.items()},
        **{f"{store}.storage.replication.factor": 1 for store in stores},
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "key.converter": converter,
        "value.converter": converter,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 200,
        "scheduled.rebalance.max.delay.ms": 0,
        "session.timeout.ms": 2_000,
        "heartbeat.interval.ms": 500,
        "consumer.session.timeout.ms": 2_000,
        "consumer.heartbeat.interval.ms": 500,
    }


def for_all_clients(security: Mapping[str, str]) -> dict[str, object]:
    """Returns the properties for the worker's own clients and for those of its connectors."""
    prefixes = ("", "producer.", "consumer.", "admin.")
    return {prefix + name: value for prefix in prefixes for name, value in security.items()}
