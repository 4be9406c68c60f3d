"""docs/pipeline.md, typed from its installation to its last line as a newcomer would.

`test_company_page.py` types what stands before.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.spark.jars import ALL_PINS, JarsUnavailable, jars
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands, typed_lines

pytestmark = pytest.mark.spark

SECONDS_MAX = 240
SAID = {
    "table stream --topic accounts --table tables/accounts --key": "2 keys in tables/accounts\n",
    "groups describe": "lag 0\n",
    "--table tables/orders": "1 key in tables/orders\n",
    "start_session": "|carol|Lima",
    "table batch": "2 keys in tables/parquet\n",
    "table offsets": "accounts",
    "--history": "values in tables/accounts-history\n",
    "table stream --topic accounts --format iceberg": " in lake.bank.accounts\n",
    "load --from mayors.csv --from-format csv --topic mayors --create 3": "mayors: 2 new, 0 changed, "
    "0 deleted, 0 unchanged; 2 records of ",
    "--sync --dry-run": "1 new, 1 changed, 1 deleted, 0 unchanged; 3 records of ",
    "get mayors Rome": '"mayor":"Gio"',
    "export shop.orders": "1 key in tables/orders-files/current",
    "export accounts --to tables/accounts-delta": "2 keys in ",
    "export accounts --to bank.accounts": "2 keys in bank.accounts",
}
"""What a command prints, among other things."""


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    try:
        for pins in ALL_PINS:
            jars(pins)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def lines() -> list[str]:
    page = (CHECKOUT / "docs" / "pipeline.md").read_text("utf-8")
    return typed_lines(page.partition("\n## Install\n")[2])


def test_the_pages_commands_make_a_delta_table_that_follows_a_topic(tmp_path: Path) -> None:
    make, *typed = lines()
    assert make == "make pipeline"
    subprocess.run(["make", "-n", "pipeline"], cwd=CHECKOUT, check=True, capture_output=True)

    with BrokerProcess(tmp_path) as broker:
        newcomer = Newcomer(broker, tmp_path)
        for line in typed:
            newcomer.type(line)

    assert newcomer.saw == set(SAID)


class Newcomer:
    """Types lines in a folder, and looks at what they print."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._typed = TypedCommands(broker)
        self._folder = folder
        self.saw: set[str] = set()

    def type(self, line: str) -> None:
        if "--every" in line:
            self._type_until_there_is_no_lag(line)
            return
        line = line.replace(".venv/bin/python ", f"{sys.executable} ")
        done = self._typed.line(line, cwd=self._folder, seconds_max=SECONDS_MAX)
        assert done.returncode == 0, (line, done)
        for part, said in SAID.items():
            if part in line:
                assert said in done.stdout, (line, done)
                self.saw.add(part)

    def _type_until_there_is_no_lag(self, line: str) -> None:
        """Ctrl-C ends it, with the code that says so."""
        stream = self._typed.begun(line, cwd=self._folder)
        deadline = time.monotonic() + SECONDS_MAX
        while self._lag() != 0:
            assert stream.poll() is None, stream.communicate()
            assert time.monotonic() < deadline, "the stream does not come to the end"
            time.sleep(0.5)
        stream.send_signal(signal.SIGINT)
        _, complaints = stream.communicate(timeout=SECONDS_MAX)
        assert stream.returncode == 130, complaints
        assert "Traceback" not in complaints

    def _lag(self) -> int | None:
        """None while the group is not there, or has not read all partitions."""
        asked = self._typed.run("groups", "describe", "accounts-table", "--json")
        if asked.returncode != 0:
            return None
        (group,) = json.loads(asked.stdout)["groups"]
        return int(group["lag"]) if len(group["partitions"]) == 2 else None
