"""docs/recipes.md, typed from its first line to its last as a newcomer would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.spark.jars import ALL_PINS, JarsUnavailable, jars
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands, typed_lines

pytestmark = pytest.mark.spark

SECONDS_MAX = 240
SAID = {
    "tables/accounts --key-format": "2 keys in tables/accounts\n",
    "join_stream_with_table": "Bern 7\nRome 6\n",
    "--key key --create 2": "account-features: 2 new, 0 changed, 0 deleted, 0 unchanged; ",
    "--topic account-features --key key --sync": "account-features: 0 new, 0 changed, 1 deleted, "
    "1 unchanged; ",
    "get account-features bob": '"changes":2,"cities":2,"highest_balance":50,"last_city":"Oslo"}',
    "--topic outbox --create 1": "outbox: 2 new, 0 changed, 0 deleted, 0 unchanged; ",
    "--topic outbox --key": "outbox: 1 new, 0 changed, 1 deleted, 1 unchanged; ",
    "consume outbox": "Your order",
}
"""What a command prints, among other things."""
EVENTS = ["2 keys in tables/events\n", "3 keys in tables/events\n"]


def test_the_recipes_do_what_the_page_says(tmp_path: Path) -> None:
    try:
        for pins in ALL_PINS:
            jars(pins)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")
    page = (CHECKOUT / "docs" / "recipes.md").read_text("utf-8")
    saw, events = set(), []
    with BrokerProcess(tmp_path / "broker") as broker:
        typed = TypedCommands(broker)
        for line in typed_lines(page):
            ours = line.replace(".venv/bin/python ", f"{sys.executable} ")
            done = typed.line(ours, cwd=tmp_path, seconds_max=SECONDS_MAX)
            assert done.returncode == 0, (line, done)
            for part, said in SAID.items():
                if part in line:
                    assert said in done.stdout, (line, done)
                    saw.add(part)
            if "tables/events" in line:
                events.append(done.stdout)
    assert saw == set(SAID)
    assert [said.partition("\n")[0] + "\n" for said in events] == EVENTS
