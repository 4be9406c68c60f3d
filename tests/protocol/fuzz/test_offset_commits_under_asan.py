"""The scan of offsets reads what a disk gives: nothing there may make it read out of bounds.

`KOMPAKT_FUZZ_RUNS` asks for a longer soak, `KOMPAKT_FUZZ_SEED` for other inputs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.harness.sanitized import module_sanitized, run_sanitized

RUNS_SOAK = int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0"))
RUNS = RUNS_SOAK or 2_000
SEED = int(os.environ.get("KOMPAKT_FUZZ_SEED", "1"))


@pytest.mark.timeout(0 if RUNS_SOAK else 300)
def test_damaged_records_never_take_the_scan_out_of_bounds(tmp_path: Path) -> None:
    scan = module_sanitized("protocol/offset_commits.pyx", tmp_path)

    outcome = run_sanitized(
        "-m", "tests.protocol.fuzz.feed_offsets", str(scan), str(SEED), str(RUNS)
    )

    assert outcome.returncode == 0, outcome.stderr[-8_000:]
    counts = json.loads(outcome.stdout)
    for what in ("read", "unreadable", "CorruptBatch", "UnknownGroupRecord"):
        assert counts[what] > 0, counts
