"""Small Java programs for tests, each compiled once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pipeline.spark.jars import cache_folder, jars, require_command

SOURCES = Path(__file__).resolve().parents[1] / "conformance" / "java"
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")


class JavaProgram:
    """`<program>.java` in its own JVM, which answers lines during the `with` block.

    Raises JarsUnavailable, with a message that says what to install, if Java is unavailable.
    """

    def __init__(self, program: str, pins: Path) -> None:
        found = jars(pins)
        class_path = [compiled(program, found), *found]
        self._scratch = tempfile.TemporaryDirectory(prefix=f"{program}-")
        self._folder = Path(self._scratch.name)
        """A folder that is deleted with the program."""
        self._said = self._folder / "stderr"
        with self._said.open("wb") as stderr:
            self._process = subprocess.Popen(
                java_command(program, class_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._scratch.cleanup()

    def _answers(self, line: str) -> IO[str]:
        """Send a line. Returns the stream from which to read the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout

    def _ended(self, at: str) -> AssertionError:
        """Returns the error for a program that ended without an answer, with its standard error."""
        self._process.wait()
        said = self._said.read_text(errors="replace")
        return AssertionError(f"{at} ended the JVM:\n{said[-4000:]}")


def java_command(program: str, class_path: Sequence[Path]) -> list[str]:
    """Returns the command that runs the compiled `<program>.java` with these folders and jars."""
    joined = os.pathsep.join(str(path) for path in class_path)
    return ["java", *OPTIONS, "-cp", joined, program]


def compiled(program: str, against: Sequence[Path]) -> Path:
    """Returns the folder of the compiled program, one for each version of its source.

    Raises JarsUnavailable, with a message that says what to install, if there is no compiler.
    """
    require_command("javac", "openjdk-17-jdk-headless")
    source = SOURCES / f"{program}.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "java" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        class_path = os.pathsep.join(str(jar) for jar in against)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            staged = Path(scratch) / "classes"
            command = ["javac", "-Xlint:-options", "--release", "17", "-cp", class_path]
            subprocess.run([*command, "-d", str(staged), str(source)], check=True)
            put_in_place(staged, folder)
    return folder


def put_in_place(staged: Path, folder: Path) -> None:
    """Rename the folder. If another process was faster, keep its classes, which have the same source."""
    try:
        staged.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
