"""The command line as a user types it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import ServeArguments, parse_plain_serve

ROOT = Path(__file__).resolve().parents[2]


def kompakt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        (["serve"], ServeArguments(config=None, overrides=())),
        (
            ["serve", "--config", "f", "--override", "a=b", "--override=c=d"],
            ServeArguments(config=Path("f"), overrides=("a=b", "c=d")),
        ),
        (["serve", "--override="], ServeArguments(config=None, overrides=("",))),
    ],
)
def test_plain_serve_is_recognised_without_libraries(
    arguments: list[str], parsed: ServeArguments
) -> None:
    assert parse_plain_serve(arguments) == parsed


@pytest.mark.parametrize(
    "arguments", [[], ["--version"], ["serve", "--help"], ["serve", "--override"], ["serve", "x"]]
)
def test_everything_else_is_left_to_the_library(arguments: list[str]) -> None:
    assert parse_plain_serve(arguments) is None


def test_the_version_is_printed() -> None:
    done = kompakt("--version")

    assert done.returncode == 0
    assert done.stdout.startswith("kompakt ")


def test_help_names_the_options_of_serve() -> None:
    done = kompakt("serve", "--help", COLUMNS="120")

    assert done.returncode == 0
    assert "--config" in done.stdout
    assert "--override" in done.stdout


@pytest.mark.parametrize("arguments", [["sevre"], ["serve", "--overide", "a=b"], ["serve", "x"]])
def test_a_wrong_command_line_is_told_and_ends_with_2(arguments: list[str]) -> None:
    done = kompakt(*arguments)

    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "log.segment.bytes=12",
            "12 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ("nonsense", "--override nonsense: write it as name=value"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "cannot be reached"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_ends_with_2(override: str, message: str) -> None:
    done = kompakt("serve", "--override", override)

    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_file_is_one_line_and_ends_with_2(tmp_path: Path) -> None:
    done = kompakt("serve", "--config", str(tmp_path / "absent"))

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_port_in_use_is_one_sentence_and_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = kompakt(
            "serve",
            f"--override=listeners=PLAINTEXT://127.0.0.1:{port}",
            f"--override=log.dirs={tmp_path / 'data'}",
            "--override=http.listener=",
        )

    assert done.returncode == 1
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_imports_nothing_of_the_other_commands() -> None:
    """Importing all of them would take longer than the start of the broker."""
    program = (
        "import sys; from cli.main import parse_plain_serve; import cli.serve, server.run;"
        " print(*(name for name in ('typer', 'rich', 'kafka', 'sqlite3', 'cli.commands')"
        " if name in sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []


def test_the_pipelines_help_imports_no_spark() -> None:
    program = (
        "import sys; from cli.main import main; code = main(['pipeline', '--help']);"
        "sys.exit(code or any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done
    assert "jars" in done.stdout
