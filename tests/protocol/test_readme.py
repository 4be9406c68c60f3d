"""The README tells which APIs there are, and nothing else."""

from __future__ import annotations

from tests.harness.readme_table import BEGIN, END, README, with_table


def test_the_readmes_table_is_that_of_the_apis_served() -> None:
    """After a change: `python -m tests.harness.readme_table`."""
    readme = README.read_text("utf-8")

    assert readme.count(BEGIN) == readme.count(END) == 1
    assert readme == with_table(readme)
