"""ARCHITECTURE.md tells which files a produce request passes; a request that is run passes those."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from protocol.messages.produce import ProduceResponse
from tests.harness.plain_requests import switch_off
from tests.harness.served_broker import batch_of, only_produced, produce_request, serving_broker

CHECKOUT = Path(__file__).resolve().parents[3]
FILES_MAX = 9
STARTS = {"server/handlers/produce.py", "server/durability/group_commit.py"}
"""The files whose calls belong to the request, and to the sync that it waits for."""
TRACED = ("storage/", "server/durability/")
CHECKS = "storage/threads.py"
"""Tests check the threads of calls; a broker in service does not."""


def told() -> tuple[list[str], set[str]]:
    """The files that pass the batch on, and those that they ask or tell."""
    text = (CHECKOUT / "ARCHITECTURE.md").read_text("utf-8")
    passed = re.findall(r"^\| (\d) \| `([^`]+)` \|", text, re.MULTILINE)
    assert [int(number) for number, _ in passed] == list(range(1, len(passed) + 1))
    _, _, below = text.partition("\nOn the way they consult or notify these files")
    asked, _, _ = below.partition("`tests/")
    found, folder = set(), ""
    for name in re.findall(r"`([\w/]+\.py)`", asked):
        folder = name.rpartition("/")[0] or folder
        found.add(f"{folder}/{name.rpartition('/')[2]}")
    return [name for _, name in passed], found


class Trace:
    """Collects the files whose functions a request calls."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        name = self._name(frame)
        if event == "call" and name is not None and name != CHECKS and self._is_of_request(frame):
            self.files.add(name)

    def _is_of_request(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if self._name(frame) in STARTS:
                return True
            frame = frame.f_back
        return False

    def _name(self, frame: FrameType) -> str | None:
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(CHECKOUT):
            return None
        name = path.relative_to(CHECKOUT).as_posix()
        return name if name in STARTS or name.startswith(TRACED) else None


async def test_a_durable_batch_passes_the_nine_files_of_the_table_and_asks_only_those_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, asked = told()
    trace = Trace()
    switch_off(monkeypatch)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        for number in range(3):
            # The first one creates files and opens them.
            sys.setprofile(trace if number == 2 else None)
            client_id = client.send(produce_request("orders", batch_of(1), acks=-1), 9)
            answer = await client.receive(ProduceResponse, 9, client_id)
            sys.setprofile(None)
            assert only_produced(answer).base_offset == number

    assert len(passed) <= FILES_MAX
    in_python = {name for name in passed if name.endswith(".py")}
    assert trace.files >= in_python
    assert trace.files - in_python == asked
