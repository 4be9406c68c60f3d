"""An application of Kafka Streams with one global table, `conformance/java/GlobalTable.java`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.spark.jars import jars
from tests.harness.java_program import compiled, java_command
from tests.harness.word_count import PINS

STOP_SECONDS_MAX = 30.0


class GlobalTable:
    """The application, over one topic; its local state and its log are in `folder`.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        found = jars(PINS)
        command = java_command("GlobalTable", [compiled("GlobalTable", found), *found])
        properties = {
            "bootstrap.servers": bootstrap,
            "application.id": "global-table",
            "state.dir": folder / "state",
        }
        self._command = [*command, topic, *(f"{key}={value}" for key, value in properties.items())]
        self._log = folder / "global-table.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        if kind is not None:
            self._process.kill()
        self._process.communicate(timeout=STOP_SECONDS_MAX)
        assert kind is not None or self._process.returncode == 0, self._tail()

    def rows(self) -> dict[str, str]:
        """Returns the table, once the application is running."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("state\n")
        self._process.stdin.flush()
        found: dict[str, str] = {}
        for row in iter(self._process.stdout.readline, "\n"):
            assert row, f"it has ended: {self._tail()}"
            key, value = row.rstrip("\n").rsplit(" ", 1)
            found[key] = value
        return found

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
