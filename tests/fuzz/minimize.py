"""Add to a corpus what runs new lines: `python -m tests.fuzz.minimize TARGET FOLDER`.

The smallest input for each pair of lines that follow each other is kept. (libFuzzer's own `-merge=1`
starts processes in which atheris measures nothing.)
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
TRACED = ("/server/", "/protocol/", "/joserfc/")

Step = tuple[object, int, int]


def steps_of(target: Callable[[bytes], None], data: bytes) -> set[Step]:
    """Returns the pairs of lines that a target runs one after the other."""
    found: set[Step] = set()

    def entered(frame: FrameType, _event: str, _argument: Any) -> Any:
        if not any(each in frame.f_code.co_filename for each in TRACED):
            return None
        last = 0

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((frame.f_code, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    sys.settrace(entered)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return found


def smallest(target: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """Returns the inputs that run what smaller ones do not."""
    kept: list[bytes] = []
    known: set[Step] = set()
    for data in sorted(inputs, key=len):
        steps = steps_of(target, data)
        if not steps <= known:
            known |= steps
            kept.append(data)
    return kept


def main(name: str, folder: str) -> None:
    """Replace the corpus of a target by the smallest of its inputs and those of a folder."""
    target, corpus = TARGETS[name], CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    old = list(corpus.iterdir())
    inputs = [each.read_bytes() for each in (*old, *Path(folder).iterdir())]
    target(b"")  # What is imported and made once belongs to no input.
    kept = smallest(target, inputs)
    for each in old:
        each.unlink()
    for data in kept:
        (corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]).write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
