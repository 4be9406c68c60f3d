"""Small Java programs of the tests, each compiled once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipeline.jars import cache_folder, require_command

SOURCES = Path(__file__).resolve().parents[1] / "conformance" / "java"
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")


def java_command(program: str, class_path: Sequence[Path]) -> list[str]:
    """What runs `<program>.java`, compiled, with these folders and jars."""
    joined = os.pathsep.join(str(path) for path in class_path)
    return ["java", *OPTIONS, "-cp", joined, program]


def compiled(program: str, against: Sequence[Path]) -> Path:
    """The folder of the compiled program, one for each state of its source.

    Raises JarsUnavailable, with a sentence that says what to install, where there is no compiler.
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
    """Rename; where another process was first, its classes are of the same source."""
    try:
        staged.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
