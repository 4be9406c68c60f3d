"""README.md maps each of Kafka's tests to ours: the tests that it names must exist."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parent / "README.md").read_text()
REPOSITORY = Path(__file__).parents[2]
TABLE_ROW = re.compile(r"^\| (\S*[tT]est\S*|\*\S+\*) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`((?:\w+/)*test_\w+\.py)::(\w+)`")


def section(title: str) -> str:
    """Returns the text under a third-level heading."""
    return TEXT.split(f"### {title}\n")[1].split("\n###")[0]


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 100

    for file, name in named:
        path = REPOSITORY / (file if file.startswith("tests/") else f"tests/cleaner/{file}")
        assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), (file, name)


def test_each_of_the_24_invariants_has_a_test_of_its_name() -> None:
    files = (Path(__file__).parent / "invariants").glob("test_*.py")
    numbers = re.findall(r"def test_invariant_(\d\d)_", "".join(map(Path.read_text, files)))

    assert sorted({int(number) for number in numbers}) == list(range(1, 25))


def test_every_test_of_kafkas_cleaner_is_told_of_once() -> None:
    """The numbers are those of Apache Kafka 4.4."""
    for title, count in (
        ("LogCleanerTest.java", 55),
        ("LogCleanerManagerTest.java", 31),
        ("LogCleanerIntegrationTest.java", 10),
        ("MemoryRecordsTest.java", 11),
    ):
        rows = TABLE_ROW.findall(section(title))
        assert len(rows) == len({kafkas for kafkas, _ours in rows}) == count, title


def test_a_row_names_a_test_or_says_why_there_is_none() -> None:
    for kafkas, ours in TABLE_ROW.findall(TEXT):
        assert NAMED.search(ours) or len(ours.split()) > 4, kafkas
