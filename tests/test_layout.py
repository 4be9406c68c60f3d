"""The rules of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    *("cli", "server", "cleaner", "replog", "storage", "protocol"),
    *("metrics", "pipeline", "schemas"),
)
NUMBERED = re.compile(r"(issue|case|scenario|test)_?\d")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "types"}


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yields the path below the checkout, and the tree, of each module."""
    for path in modules(*folders):
        yield str(path.relative_to(ROOT)), _tree(path)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_a_module_says_what_it_is() -> None:
    assert [name for name, tree in parsed(*PACKAGES) if not ast.get_docstring(tree)] == []


def test_a_module_has_a_name_that_says_something() -> None:
    assert [str(path) for path in modules(*PACKAGES) if path.stem in BANNED_NAMES] == []


def test_a_test_says_its_behaviour() -> None:
    numbered = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in parsed("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and NUMBERED.search(node.name)
    ]

    assert numbered == [], "a name says what must hold"


def test_tests_are_no_packages() -> None:
    """They are imported by path; packages of them would clash."""
    assert [str(path) for path in modules("tests") if path.name == "__init__.py"] == []


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


def test_the_readme_of_the_harness_lists_its_modules() -> None:
    text = (ROOT / "tests" / "harness" / "README.md").read_text("utf-8")
    first_cells = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    listed = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]

    assert sorted(listed) == sorted(path.stem for path in modules("tests/harness"))


def test_no_source_names_the_place_it_was_written_at() -> None:
    named = re.compile("/work" + r"/(main|shared)|/tmp" + "/brief")
    for path in modules(*PACKAGES, "tests", "bench", "demo"):
        assert not named.search(path.read_text("utf-8")), path


def test_one_place_makes_progress_bars() -> None:
    """`progress_bars` chooses the right stream; rich by itself would also capture standard output."""
    makers = [
        name
        for name, tree in parsed(*PACKAGES)
        if "rich" in (ROOT / name).read_text("utf-8") and any(map(_makes_progress, ast.walk(tree)))
    ]

    assert makers == ["cli/base/output.py"]


def _makes_progress(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Progress"


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
        f"{name}:{node.lineno}"
        for name, tree in parsed("server", "cleaner", "replog", "metrics", "storage")
        for node in ast.walk(tree)
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
