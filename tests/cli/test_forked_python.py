"""Forks of an importing process against new interpreters: `tests/harness/forked_python.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.forked_python import ForkedProgram, start_python
from tests.harness.typed_commands import run_kompakt

IMPORTS = ("json",)


@pytest.mark.parametrize("arguments", [["--version"], ["topics", "--help"], ["produce"], ["nope"]])
def test_a_command_in_a_fork_does_what_it_does_in_a_new_interpreter(arguments: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "cli", *arguments]
    new = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    forked = run_kompakt(*arguments, environment=environment)

    assert (forked.stdout, forked.stderr) == (new.stdout, new.stderr)
    assert forked.returncode == new.returncode


def test_a_fork_reads_its_input_and_ends_with_its_exit_code() -> None:
    for given, code in ((b'{"a": 1}', 0), (b"{", 1)):
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
            stdin.write(given)
            stdin.seek(0)
            command = [sys.executable, "-m", "json.tool", "--compact"]
            program = start_python(
                command, IMPORTS, stdin=stdin.fileno(), stdout=stdout, stderr=stdout
            )
            assert program.wait(60) == code
            stdout.seek(0)
            assert (stdout.read() == b'{"a":1}\n') is (code == 0)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ForkedProgram]:
    """A fork that waits for its standard input."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stdin, os.fdopen(write_end, "wb"):
        with (tmp_path / "output").open("wb") as output:
            program = start_python(
                [sys.executable, "-m", "json.tool"],
                IMPORTS,
                stdin=stdin.fileno(),
                stdout=output,
                stderr=output,
            )
        assert isinstance(program, ForkedProgram)
        yield program
        program.kill()
        program.wait()


def test_a_fork_has_the_descriptors_of_a_new_process(waiting: ForkedProgram) -> None:
    descriptors = Path(f"/proc/{waiting.pid}/fd")
    while {each.name for each in descriptors.iterdir()} != {"0", "1", "2"}:
        assert waiting.poll() is None


def test_a_fork_is_killed_and_waited_for_like_a_process_of_ones_own(waiting: ForkedProgram) -> None:
    assert waiting.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.01)

    waiting.kill()

    assert waiting.wait() == -signal.SIGKILL
    assert waiting.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{waiting.pid}").exists()


def test_threads_wait_for_the_same_fork(waiting: ForkedProgram) -> None:
    with ThreadPoolExecutor() as threads:
        waits = [threads.submit(waiting.wait, 60) for _ in range(4)]
        waiting.kill()

        assert {each.result() for each in waits} == {-signal.SIGKILL}
