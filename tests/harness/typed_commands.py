"""Runs `kompakt` commands against a broker process, as a user would type them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.forked_python import start_python

COMMAND_SECONDS_MAX = 600


def page_blocks(page: Path, language: str) -> list[str]:
    """Returns the code blocks of a page that are in a language."""
    return _blocks(page.read_text("utf-8"), language)


def typed_lines(text: str) -> list[str]:
    """Returns what is typed in the console blocks of a page, or of a part of it."""
    typed = [line for block in _blocks(text, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in typed)
    return [line.removeprefix("$ ") for line in typed]


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_kompakt(
    *arguments: str, environment: Mapping[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `kompakt` in a fork, with `given` on its standard input, which is a pipe.

    Raises subprocess.TimeoutExpired after `COMMAND_SECONDS_MAX`; then the command is killed.
    """
    command = [sys.executable, "-m", "cli", *arguments]
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # A command may end without reading all.
        with contextlib.suppress(BrokenPipeError), os.fdopen(write_end, "wb") as pipe:
            with os.fdopen(read_end, "rb"):
                program = start_python(
                    command,
                    ("tests.harness.all_commands",),
                    stdin=read_end,
                    stdout=output,
                    stderr=errors,
                    environment=environment,
                )
            pipe.write(given.encode())
        try:
            code = program.wait(COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            command, code, output.read().decode(), errors.read().decode()
        )


class TypedCommands:
    """Runs commands against a broker, 80 columns wide."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.environment = {
            **os.environ,
            "COLUMNS": "80",
            "KOMPAKT_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "KOMPAKT_URL": f"http://127.0.0.1:{broker.http_port}",
            "KAFKA_LISTENERS": f"PLAINTEXT://{broker.bootstrap_servers}",
            "PYTHONPATH": str(CHECKOUT),
        }

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command, with `given` on its standard input."""
        return run_kompakt(*arguments, environment=self.environment, given=given)

    def started(
        self,
        *arguments: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command; the caller waits for its end."""
        return subprocess.Popen(
            [sys.executable, "-m", "cli", *arguments],
            cwd=CHECKOUT,
            env=self.environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )

    def line(
        self, line: str, *, cwd: Path = CHECKOUT, seconds_max: float = COMMAND_SECONDS_MAX
    ) -> subprocess.CompletedProcess[str]:
        """Run a line from our documentation in a shell; it fails if any command of a pipe fails."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._meant(line)],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )

    def begun(self, line: str, *, cwd: Path) -> subprocess.Popen[str]:
        """Start such a line, with one command; the caller waits for its end."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {self._meant(line)}"],
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _meant(self, line: str) -> str:
        """Returns the line with this checkout's command and broker in place of a user's."""
        here = {
            ".venv/bin/kompakt": f"{sys.executable} -m cli",
            "http://127.0.0.1:9644": self.environment["KOMPAKT_URL"],
            "127.0.0.1:9092": self.broker.bootstrap_servers,
        }
        for written, meant in here.items():
            line = line.replace(written, meant)
        return line

    def told(self, *arguments: str, given: str = "") -> str:
        """Returns the output of a command, which must succeed."""
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Returns the JSON document that a command prints for programs."""
        return json.loads(self.told(*arguments, "--json"))

    def shown(self, *arguments: str) -> Any:
        """Returns the JSON document of a command that may end with 1, because of what it shows."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def refused(self, *arguments: str, code: int = 1, given: str = "") -> str:
        """Returns the one-line error of a command, which must fail."""
        done = self.run(*arguments, given=given)
        assert done.returncode == code, done
        assert done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("kompakt: "), done
        return done.stderr.removeprefix("kompakt: ").rstrip()
