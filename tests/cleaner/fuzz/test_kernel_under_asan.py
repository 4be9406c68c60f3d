"""The kernel reads clients' bytes and sidecars: damage never makes it read or write out of bounds.

The kernel and the reader of its output are compiled with AddressSanitizer and UBSan and fed with mutated
batches and blocks in a separate process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.sanitized import (
    RUNS_SOAK,
    compiled_sanitized,
    fuzzed,
    run_sanitized,
)

SECONDS_MAX = 15 if RUNS_SOAK == 0 else 86_400
FAULTY = """
#include <stdlib.h>
int read_beyond(int size) { volatile char *bytes = malloc(size); return bytes[size]; }
int overflow(int number) { return number + 2147483647; }
"""


@pytest.mark.parametrize(
    ("call", "report"),
    [
        pytest.param("read_beyond(9)", "AddressSanitizer: heap-buffer-overflow", id="overread"),
        pytest.param("overflow(1)", "signed integer overflow", id="undefined_behaviour"),
    ],
)
def test_the_harness_sees_a_fault(tmp_path: Path, call: str, report: str) -> None:
    source = tmp_path / "faulty.c"
    source.write_text(FAULTY)
    library = compiled_sanitized(source, tmp_path / "faulty.so")

    outcome = run_sanitized("-c", f"import ctypes; ctypes.CDLL({str(library)!r}).{call}")

    assert outcome.returncode != 0
    assert report in outcome.stderr


def test_damaged_batches_never_take_the_kernel_out_of_bounds() -> None:
    modules = ["cleaner/kernel/kernel.pyx", "cleaner/kernel/verify_output.pyx"]
    more = [str(SECONDS_MAX)]

    counts = fuzzed("tests.cleaner.fuzz.mutate", modules, runs=4_000, more=more)

    assert counts["runs"] >= 200
    # The mutations reach the record parser, and some get beyond it.
    for step in ("index", "filter", "reader"):
        assert counts[f"with_damaged_records {step} refused"] > 0
        assert counts[f"with_damaged_records {step} accepted"] > 0
        assert counts[f"with_damaged_header {step} accepted"] > 0
        assert counts[f"undamaged {step} accepted"] > 0
    assert "undamaged index refused" not in counts
    for step in ("entries", "notes", "filter by block", "sum"):
        assert counts[f"undamaged {step} refused"] > 0
        assert counts[f"undamaged {step} accepted"] > 0
