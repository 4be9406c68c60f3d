"""The rules of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cli", "server", "cleaner", "storage", "protocol", "metrics", "pipeline")
NUMBERED = re.compile(r"(issue|case|scenario|test)_?\d")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "types"}


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", modules(*PACKAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))

    assert ast.get_docstring(tree), "a module begins with what it is"
    assert path.stem not in BANNED_NAMES


@pytest.mark.parametrize("path", modules("tests"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_says_its_behaviour(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    tests = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]

    assert not [name for name in tests if NUMBERED.search(name)], "a name says what must hold"
    assert path.name != "__init__.py", "tests are imported by path, packages of them clash"


def test_every_handler_has_messages_of_the_same_name() -> None:
    messages = {path.stem for path in modules("protocol/messages")}
    handlers = {
        path.stem for path in modules("server/handlers") if path.parent.name == "handlers"
    } - {"__init__"}

    assert handlers
    assert handlers <= messages


@pytest.mark.parametrize("name", [".gitignore", ".dockerignore"])
def test_generated_c_is_left_out_in_whatever_room_its_module_is(name: str) -> None:
    ignored = (ROOT / name).read_text("utf-8").splitlines()
    compiled = {folder for folder in PACKAGES if any((ROOT / folder).rglob("*.pyx"))}

    assert compiled
    assert {f"{folder}/**/*.c" for folder in compiled} <= set(ignored)


def test_every_file_that_the_quick_run_leaves_out_exists() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (names,) = re.findall(r"^NOT_QUICK := (.*)$", makefile, re.MULTILINE)
    assert [name for name in names.split() if not (ROOT / "tests" / name).exists()] == []


def test_no_source_names_the_place_it_was_written_at() -> None:
    named = re.compile("/work" + r"/(main|shared)|/tmp" + "/brief")
    for path in modules(*PACKAGES, "tests", "bench", "demo"):
        assert not named.search(path.read_text("utf-8")), path


def test_one_place_makes_progress_bars() -> None:
    """`progress_bars` chooses the right stream; rich by itself would also capture standard output."""
    makers = [
        path.relative_to(ROOT).as_posix()
        for path in modules(*PACKAGES)
        if any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr) == "Progress"
            and "rich" in path.read_text("utf-8")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
    ]

    assert makers == ["cli/base/output.py"]


def test_the_imports_point_one_way() -> None:
    """Runs import-linter with the contracts in pyproject.toml."""
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_uses_the_shared_threads_of_the_loop() -> None:
    """Each pool of threads has a name, a purpose and a bound (`server/runtime/executors.py`)."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("server", "cleaner", "metrics", "storage")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr == "to_thread"
            or (
                node.func.attr == "run_in_executor"
                and isinstance(node.args[0], ast.Constant)
                and node.args[0].value is None
            )
        )
    ]

    assert not found
