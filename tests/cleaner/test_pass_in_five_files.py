"""ARCHITECTURE.md names five files that show a pass; a pass must run through them in that order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.cleaner.pool_house import CLEANED, House, keys_of, running, until

CHECKOUT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^\d\. `(cleaner/[\w/]+\.py)`: (.*)$", re.MULTILINE)

Step = tuple[str, str]
"""A file and a function of it."""


def told() -> list[Step]:
    """Returns the steps that ARCHITECTURE.md lists, in its order."""
    text = (CHECKOUT / "ARCHITECTURE.md").read_text("utf-8")
    (chapter,) = re.findall(r"### A cleaning pass, top to bottom\n(.*?)\n\| ", text, re.DOTALL)
    return [
        (path, name)
        for path, line in STEP.findall(chapter)
        for name in re.findall(r"`(\w+)`", line)
    ]


@contextmanager
def calls_of(steps: list[Step]) -> Iterator[list[Step]]:
    """Collects the first call of each step, in all threads that start meanwhile."""
    called: list[Step] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            path = frame.f_code.co_filename.removeprefix(f"{CHECKOUT}/")
            step = (path, frame.f_code.co_name)
            if step in steps and step not in called:
                called.append(step)

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield called
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


async def test_a_pass_runs_through_the_five_files_in_the_order_of_the_text(tmp_path: Path) -> None:
    house = House(tmp_path)
    log = house.dirty_log()

    with calls_of(told()) as called:
        async with running(house.pool()):
            await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED
    assert len({path for path, _ in told()}) == 5
    assert called == told()
