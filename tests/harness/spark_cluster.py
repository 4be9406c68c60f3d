"""A standalone cluster of Spark on this machine: a master, and workers whose executors a test may kill.

Each worker has one core, so a job has tasks on all of them. An executor is a process of its own, below
its worker, which starts another one when it is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pyspark

from tests.harness.broker_process import free_ports
from tests.harness.group_run import until
from tests.harness.process_tree import below, kill, wait_until_gone

HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
DRIVER_OPTIONS = (
    "--conf=spark.driver.host=127.0.0.1",
    "--conf=spark.ui.enabled=false",
    "--conf=spark.sql.shuffle.partitions=4",
    "--conf=spark.databricks.delta.snapshotPartitions=1",
    "--conf=spark.executor.memory=1g",
)
"""For a driver on this machine, and for little data."""


class SparkCluster:
    """It runs within the context; logs and work folders are in `folder`."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._folder = folder
        self._workers = workers
        self._port = port
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        try:
            self._start("master", MASTER, "--port", str(self._port))
            self._until_logged("master", "I have been elected leader")
            for number in range(self._workers):
                name = f"worker-{number}"
                work = str(self._folder / name)
                options = ("--cores", "1", "--memory", "2g", "--work-dir", work, self.url)
                self._start(name, WORKER, *options)
                self._until_logged(name, "Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        started = below(os.getpid())
        ours = {each.pid for each in self._processes}
        found = {pid: line for pid, line in started.items() if pid in ours}
        for each in ours:
            found |= below(each)
        for pid in found:
            kill(pid)
        for process in self._processes:
            process.wait()
        wait_until_gone(found)

    def driver_options(self) -> Sequence[str]:
        """Returns the options with which a job runs on this cluster."""
        return ("--master", self.url, *DRIVER_OPTIONS)

    def executors(self) -> dict[int, str]:
        """Returns the running executors: their command lines by pid."""
        return {
            pid: line
            for process in self._processes
            for pid, line in below(process.pid).items()
            if EXECUTOR in line
        }

    def has_run(self) -> bool:
        """Returns whether an executor has worked for an application."""
        return any(self._folder.glob("worker-*/app-*"))

    def kill_executor(self) -> None:
        """Send SIGKILL to one executor, and wait until its worker has started another one."""
        before = self.executors()
        pid = min(before)
        kill(pid)
        until("another executor starts", lambda: bool(self.executors().keys() - before), self.tail)

    def tail(self) -> str:
        """Returns the last lines of all logs."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(line for log in logs for line in log.read_text().splitlines()[-10:])

    def _start(self, name: str, program: str, *options: str) -> None:
        command = ["bash", str(HOME / "bin" / "spark-class"), program]
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--webui-port", "0", *options],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _until_logged(self, name: str, line: str) -> None:
        log = self._folder / f"{name}.log"
        until(f"{name} logs: {line}", lambda: line in log.read_text(), self.tail)
