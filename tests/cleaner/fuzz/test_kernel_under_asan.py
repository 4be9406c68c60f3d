"""The kernel reads clients' bytes: damaged ones must never make it read or write out of bounds.

The kernel is compiled once more with AddressSanitizer and UBSan and fed with mutated batches in a
process of its own. `KOMPAKT_FUZZ_RUNS` asks for a longer soak, `KOMPAKT_FUZZ_SEED` for other inputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
RUNS_SOAK = int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0"))
RUNS = RUNS_SOAK or 4_000
SECONDS_MAX = 15 if RUNS_SOAK == 0 else 86_400
SEED = int(os.environ.get("KOMPAKT_FUZZ_SEED", "1"))
FAULTY = """
#include <stdlib.h>
int read_beyond(int size) { volatile char *bytes = malloc(size); return bytes[size]; }
int overflow(int number) { return number + 2147483647; }
"""


def compiled(source: Path, target: Path) -> Path:
    """Compile as the sanitizers want it, or skip the test where gcc has none."""
    include = [REPOSITORY / "protocol", REPOSITORY / "cleaner", sysconfig.get_paths()["include"]]
    flags = ["-shared", "-fPIC", "-g", "-O1", "-w", *SANITIZE, *(f"-I{path}" for path in include)]
    try:
        outcome = subprocess.run(
            ["gcc", *flags, str(source), "-o", str(target)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("gcc is not installed")
    if outcome.returncode != 0 and "asan" in outcome.stderr:
        pytest.skip("gcc comes without AddressSanitizer: install libasan")
    assert outcome.returncode == 0, outcome.stderr
    return target


def run_sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = os.environ | {
        "LD_PRELOAD": runtime.stdout.strip(),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(REPOSITORY),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )


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
    library = compiled(source, tmp_path / "faulty.so")

    outcome = run_sanitized("-c", f"import ctypes; ctypes.CDLL({str(library)!r}).{call}")

    assert outcome.returncode != 0
    assert report in outcome.stderr


@pytest.mark.timeout(0 if RUNS_SOAK else 300)
def test_damaged_batches_never_take_the_kernel_out_of_bounds(tmp_path: Path) -> None:
    source = tmp_path / "kernel.c"
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", "-I", ".", "cleaner/kernel.pyx", "-o", str(source)],
        cwd=REPOSITORY,
        check=True,
    )
    kernel = compiled(source, tmp_path / "kernel.so")

    outcome = run_sanitized(
        "-m", "tests.cleaner.fuzz.mutate", str(kernel), str(SEED), str(RUNS), str(SECONDS_MAX)
    )

    assert outcome.returncode == 0, outcome.stderr[-8_000:]
    counts = json.loads(outcome.stdout)
    assert counts["runs"] >= 200
    # The mutations reach the record parser, and not all of them stop there.
    for step in ("map", "filter"):
        assert counts[f"with_damaged_records {step} refused"] > 0
        assert counts[f"with_damaged_records {step} accepted"] > 0
        assert counts[f"with_damaged_header {step} accepted"] > 0
        assert f"undamaged {step} refused" not in counts
