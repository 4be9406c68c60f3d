"""A PostgreSQL of its own: made in a folder, started, killed, started again; with logical decoding.

PostgreSQL refuses to run as root. For root, its processes run as the user `postgres`, which Debian's
package creates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.harness.broker_process import free_ports
from tests.harness.process_tree import below, wait_until_gone

USER = "postgres"
DATABASE = "postgres"
START_SECONDS_MAX = 60.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "timezone": "UTC",
    # No test cuts the power, and what a killed process has written stays in the page cache.
    "fsync": "off",
    "shared_buffers": "64MB",
}


class PostgresUnavailable(Exception):
    """PostgreSQL is not installed. The message is one sentence that says what to install."""


class Postgres:
    """One cluster with one superuser, who needs no password, on a port of 127.0.0.1.

    It has a folder of its own below /tmp, because its user must be able to reach it.

    Raises PostgresUnavailable if it is not installed.
    """

    def __init__(self) -> None:
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

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
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it on its data, which the first start makes, and wait until it takes connections."""
        if not self._data.exists():
            self._make()
        words = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, f"-cport={self.port}", *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **_as_user(),
            )
        self._wait_until_ready()

    def kill(self) -> None:
        """Send SIGKILL to the server. Its other processes notice that, and end."""
        assert self._process is not None
        others = below(self._process.pid)
        self._process.kill()
        self._process.wait()
        wait_until_gone(others)
        self._process = None

    def connect(self) -> psycopg.Connection[Any]:
        """Returns a new connection, each of whose statements is a transaction of its own."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=DATABASE, autocommit=True
        )

    def execute(self, sql: str) -> None:
        """Run statements that have no result."""
        with self.connect() as connection:
            connection.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Returns the rows of a query."""
        with self.connect() as connection:
            return connection.execute(sql).fetchall()

    def value(self, sql: str) -> Any:
        """Returns the one value of a query."""
        ((value,),) = self.rows(sql)
        return value

    def tail(self) -> str:
        """Returns the end of its log, for messages."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    @property
    def _log(self) -> Path:
        return self._folder / "postgres.log"

    def _make(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self._folder, USER, USER)
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(
            [self._programs / "initdb", "-D", self._data, "-U", USER, *options],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            **_as_user(),
        )
        assert done.returncode == 0, done.stderr

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process is not None
            assert self._process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            try:
                self.connect().close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return


def programs() -> Path:
    """Returns the folder of its programs, of the newest release. Raises PostgresUnavailable."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_release)
    if found:
        return found[-1].parent
    if (path := shutil.which("initdb")) is not None:
        return Path(path).resolve().parent
    raise PostgresUnavailable(
        "PostgreSQL is missing: install it with `apt-get install postgresql`."
    )


def _release(program: Path) -> float:
    return float(program.parents[1].name)


def _as_user() -> dict[str, Any]:
    """Returns how a process is started that may not be root's."""
    if os.geteuid() != 0:
        return {}
    return {"user": USER, "group": USER, "extra_groups": []}
