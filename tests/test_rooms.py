"""ARCHITECTURE.md lists the rooms as they are, and docs/where-to-look.md leads to what it promises."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
TOPS = ("protocol", "storage", "cleaner", "replog", "server", "cli", "pipeline", "bench")
ENTRIES_MAX = 25
LARGE = {
    "server/handlers": "one file for each API",
    "protocol/messages": "one file for each API",
    "cleaner/kernel": "one file for each step of the compiled pass",
}
BUILT = {".c", ".so", ".pyi"}
FILES_MAX = 4
READ = {".py", ".pyx", ".pxi", ".pxd", ".pyi", ".md", ".yml"}
NAMED = re.compile(r"`([\w/]+\.(?:py|pyx|pxi|md))`")
"""A source, as texts name it."""

PAGE = (CHECKOUT / "docs" / "where-to-look.md").read_text("utf-8")
ANSWERS = dict(re.findall(r"^\*\*(.+?)\*\*\n\n((?:\d\. .*\n)+)", PAGE, re.MULTILINE))


def rooms() -> dict[str, str]:
    """Each room's folder and what its `__init__.py` says it is."""
    found = {}
    for top in TOPS:
        for init in sorted((CHECKOUT / top).rglob("__init__.py")):
            if init.parent.name != top:
                text = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
                name = init.parent.relative_to(CHECKOUT).as_posix()
                found[name] = " ".join(text.split()).replace("`", "")
    return found


@cache
def listed() -> dict[str, str]:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text("utf-8")
    (listing,) = re.findall(r"## 1\. The folders.*?```\n(.*?)```", text, re.DOTALL)
    found, top = {}, ""
    for line in listing.splitlines():
        name, text = re.fullmatch(r"(\s*[\w/]+/)\s*(.*)", line).groups()  # type: ignore[union-attr]
        if not name.startswith(" "):
            top = name
        else:
            found[f"{top}{name.strip()}".rstrip("/")] = text
    return found


def test_architecture_lists_every_room_with_the_sentence_of_its_package() -> None:
    assert listed() == rooms()


def room_of(path: str) -> str | None:
    """Returns the innermost listed room that holds a file or a module; None for the top of a package."""
    holding = [room for room in listed() if path.startswith(f"{room}/")]
    return max(holding, key=len, default=None)


def imported_rooms(path: Path) -> set[str]:
    """Returns the rooms of the same package that a file imports from."""
    tree = ast.parse(path.read_text("utf-8"))
    modules = {
        f"{node.module}.{alias.name}".replace(".", "/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    top = path.relative_to(CHECKOUT).parts[0]
    found = {room_of(module) for module in modules if module.split("/")[0] == top}
    return {room for room in found if room is not None}


def test_architecture_lists_each_room_after_those_that_it_imports() -> None:
    """Except the room that it is part of."""
    places = {room: place for place, room in enumerate(listed())}
    wrong = [
        f"{path.relative_to(CHECKOUT)} imports {imported}"
        for top in TOPS
        for path in sorted((CHECKOUT / top).rglob("*.py"))
        if (room := room_of(path.relative_to(CHECKOUT).as_posix())) is not None
        for imported in sorted(imported_rooms(path))
        if places[imported] > places[room] and not room.startswith(f"{imported}/")
    ]

    assert not wrong


@pytest.mark.parametrize("room", rooms())
def test_a_room_is_small_enough_to_be_looked_through(room: str) -> None:
    entries = [
        path
        for path in (CHECKOUT / room).iterdir()
        if path.is_file() and path.suffix not in BUILT and path.name != "__init__.py"
    ]

    assert len(entries) <= ENTRIES_MAX or room in LARGE


def files_of(answer: str) -> list[str]:
    return re.findall(r"^\d\. `([^`]+)`", answer, re.MULTILINE)


def test_the_page_answers_six_questions() -> None:
    assert len(ANSWERS) == 6


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_needs_few_files_and_each_names_the_next(question: str) -> None:
    files = files_of(ANSWERS[question])

    assert 1 < len(files) <= FILES_MAX
    for name, following in pairwise(files):
        text = (CHECKOUT / name).read_text("utf-8")
        module = following.rsplit(".", 1)[0].replace("/", ".")
        assert module in text or Path(following).name in text, f"{name} does not name {following}"


def test_every_source_that_a_text_names_exists() -> None:
    """Of a path all of it, of a name by itself that some room has such a file."""
    sources = [
        path
        for top in (*TOPS, "metrics", "schemas", "demo", "docker", "tests", "docs")
        for path in (CHECKOUT / top).rglob("*")
    ]
    names = {path.name for path in (*sources, *CHECKOUT.glob("*"))}
    texts = [*CHECKOUT.glob("*.md"), *(each for each in sources if each.suffix in READ)]
    gone = [
        f"{text.relative_to(CHECKOUT)}: {named}"
        for text in texts
        if text.name != "CHANGELOG.md"
        for named in NAMED.findall(text.read_text("utf-8"))
        if not (
            (CHECKOUT / named).exists()
            if named.split("/")[0] in TOPS
            else Path(named).name in names
        )
    ]

    assert not gone


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_names_functions_that_exist(question: str) -> None:
    for line in ANSWERS[question].splitlines():
        path, *named = re.findall(r"`([^`]+)`", line)
        text = (CHECKOUT / path).read_text("utf-8")
        for name in named:
            assert f"def {name}(" in text or (CHECKOUT / name).exists(), (path, name)
