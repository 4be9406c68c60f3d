"""The tally reads what a crash has left: nothing there may make it read or write out of bounds.

`KOMPAKT_FUZZ_RUNS` asks for a longer soak, `KOMPAKT_FUZZ_SEED` for other inputs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.harness.sanitized import module_sanitized, run_sanitized

RUNS_SOAK = int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0"))
RUNS = RUNS_SOAK or 1_000
SEED = int(os.environ.get("KOMPAKT_FUZZ_SEED", "1"))


@pytest.mark.timeout(0 if RUNS_SOAK else 300)
def test_damaged_batches_never_take_the_tally_out_of_bounds(tmp_path: Path) -> None:
    tally = module_sanitized("protocol/batch_tally.pyx", tmp_path)

    outcome = run_sanitized(
        "-m", "tests.protocol.fuzz.feed_tally", str(tally), str(SEED), str(RUNS)
    )

    assert outcome.returncode == 0, outcome.stderr[-8_000:]
    counts = json.loads(outcome.stdout)
    for stop in ("END", "TRUNCATED", "BAD_CRC", "BAD_HEADER", "OUT_OF_ORDER"):
        assert counts[stop] > 0, counts
