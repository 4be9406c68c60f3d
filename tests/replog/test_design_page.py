"""docs/design/replog.md leads from each section of the paper to the code, and names all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "design" / "replog.md").read_text("utf-8")
SECTIONS = ("1", "2", "3", "4", "5", "5.1", "5.2", "5.3", "5.4", "6")
NOT_BUILT = {"1, write-ahead log", "6, fork"}
NAMED = re.compile(r"`([\w/]+(?:\.py|/))`")


def rows() -> dict[str, tuple[str, str]]:
    """Returns the table's places and deviations by the first column."""
    _, _, text = PAGE.partition("## The paper's sections")
    text, _, _ = text.partition("\n## ")
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {name: (where, how) for name, where, how in cells[2:]}


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_of_the_paper_has_a_row(section: str) -> None:
    assert [name for name in rows() if name.split(",")[0] == section]


def test_a_row_names_files_that_exist_and_says_how_we_differ() -> None:
    for name, (where, how) in rows().items():
        files = NAMED.findall(where)
        assert bool(files) is (name not in NOT_BUILT), name
        assert [file for file in files if not (CHECKOUT / file).exists()] == [], name
        assert how, name


def test_every_module_of_the_library_is_in_the_table_or_explained() -> None:
    modules = sorted((CHECKOUT / "replog").rglob("*.py"))
    missing = [
        path.name for path in modules if path.name != "__init__.py" and path.name not in PAGE
    ]

    assert missing == []
