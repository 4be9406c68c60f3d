"""Asks `make -n` what it would do: the compiled modules are built only once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAMPS = ("bin/python", ".installed", ".installed-demo", ".installed-dev")


def commands(target: str, environment: Path) -> list[str]:
    """Returns the commands that make would run for a target, with this virtual environment."""
    # Under `make test`, the environment has the variables of that make.
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", target, f"VENV={environment}"],
        cwd=ROOT,
        env=outer,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def builds(lines: list[str]) -> list[str]:
    """Returns the commands that compile: those that build the modules or the checkout."""
    return [
        line
        for line in lines
        if "build_ext" in line or (" -e " in line and "KOMPAKT_MODULES=in-place" not in line)
    ]


@pytest.mark.parametrize("target", ["run", "test", "quick", "lint", "demo", "pipeline"])
def test_nothing_installed_the_modules_are_built_once(target: str, tmp_path: Path) -> None:
    lines = commands(target, tmp_path / "venv")

    assert len(builds(lines)) == 1, lines


@pytest.mark.parametrize("target", ["run", "test", "quick", "lint", "demo"])
def test_everything_installed_nothing_is_built_or_installed(target: str, tmp_path: Path) -> None:
    for stamp in STAMPS:
        (tmp_path / stamp).parent.mkdir(exist_ok=True)
        (tmp_path / stamp).touch()

    lines = commands(target, tmp_path)

    assert not builds(lines)
    assert not [line for line in lines if "pip" in line.split()]


def test_a_source_newer_than_the_installation_is_built_once(tmp_path: Path) -> None:
    for stamp in STAMPS:
        (tmp_path / stamp).parent.mkdir(exist_ok=True)
        (tmp_path / stamp).touch()
    os.utime(tmp_path / ".installed", (0, 0))

    assert len(builds(commands("run", tmp_path))) == 1
