"""The programs of random histories: what starts them again, and what does not."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.harness.transaction_process import ProgramProcess

FAILS_WHEN_ASKED = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))"


def program(folder: Path, code: str) -> ProgramProcess:
    begun = ProgramProcess(folder, "program", lambda _life: [sys.executable, "-c", code])
    begun.start()
    return begun


def test_a_program_that_fails_is_started_again(tmp_path: Path) -> None:
    failing = program(tmp_path, "raise SystemExit(3)")

    while failing.lives == 1:
        failing.tend()
        time.sleep(0.01)
    failing.stop()

    assert failing.lives == 2


def test_a_program_that_fails_as_it_is_stopped_has_no_further_life(tmp_path: Path) -> None:
    asked = program(tmp_path, f"{FAILS_WHEN_ASKED}; print('up', flush=True); time.sleep(60)")
    while not (tmp_path / "program.0").read_bytes():
        time.sleep(0.01)

    asked.ask_to_end()
    asked.stop()
    asked.tend()

    assert asked.lives == 1
