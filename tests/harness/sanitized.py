"""Compile C with AddressSanitizer and UBSan, and run Python with what was compiled.

`KOMPAKT_FUZZ_RUNS` asks for a longer soak, `KOMPAKT_FUZZ_SEED` for other inputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUNS_SOAK = int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0"))
SEED = int(os.environ.get("KOMPAKT_FUZZ_SEED", "1"))
TIMEOUT_SECONDS = 0 if RUNS_SOAK else 300
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def compiled_sanitized(source: Path, target: Path) -> Path:
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


def fuzzed(
    program: str, modules: Sequence[str], folder: Path, *, runs: int, more: Sequence[str] = ()
) -> dict[str, int]:
    """Feed our modules, compiled once more, by a program of its own; what it has counted.

    Args:
        program: takes the compiled modules, the seed and the number of runs.
        runs: where no soak asks for another number.
    """
    libraries = [str(module_sanitized(module, folder)) for module in modules]
    numbers = [str(SEED), str(RUNS_SOAK or runs)]
    outcome = run_sanitized("-m", program, *libraries, *numbers, *more)
    assert outcome.returncode == 0, outcome.stderr[-8_000:]
    counts: dict[str, int] = json.loads(outcome.stdout)
    return counts


def module_sanitized(pyx: str, directory: Path) -> Path:
    """Compile one of our modules, named by its path, once more: with AddressSanitizer and UBSan."""
    source = directory / f"{Path(pyx).stem}.c"
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", "-I", ".", pyx, "-o", str(source)],
        cwd=REPOSITORY,
        check=True,
    )
    return compiled_sanitized(source, source.with_suffix(".so"))
