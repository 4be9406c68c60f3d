"""Compiles C with AddressSanitizer and UBSan, and runs Python with the result.

Our own modules take seconds each. Each is cached in the cache folder, one build for each version of
its inputs.

`KOMPAKT_FUZZ_RUNS` makes a longer soak, `KOMPAKT_FUZZ_SEED` selects other inputs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.spark.jars import cache_folder
from tests.harness.java_program import put_in_place
from tests.harness.translated import INCLUDED, translated

REPOSITORY = Path(__file__).parents[2]
RUNS_SOAK = int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0"))
SEED = int(os.environ.get("KOMPAKT_FUZZ_SEED", "1"))
INCLUDE = ("protocol/records", "cleaner/kernel", sysconfig.get_paths()["include"])
FLAGS = (
    # Unoptimized code compiles in half the time. -g1: only the line numbers for stack traces.
    "-shared", "-fPIC", "-O0", "-w", "-g1",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
    *(f"-I{path}" for path in INCLUDE),
)  # fmt: skip


def compiled_sanitized(source: Path, target: Path) -> Path:
    """Compile with the sanitizers. Skips the test where gcc lacks them."""
    try:
        outcome = subprocess.run(
            ["gcc", *FLAGS, str(source), "-o", str(target)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
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
    program: str, modules: Sequence[str], *, runs: int, more: Sequence[str] = ()
) -> dict[str, int]:
    """Fuzz our modules in an instrumented build, with a separate program. Returns the program's counts.

    Args:
        program: gets the compiled modules, the seed and the number of runs.
        runs: the default number of runs.
    """
    libraries = [str(module_sanitized(module)) for module in modules]
    numbers = [str(SEED), str(RUNS_SOAK or runs)]
    outcome = run_sanitized("-m", program, *libraries, *numbers, *more)
    assert outcome.returncode == 0, outcome.stderr[-8_000:]
    counts: dict[str, int] = json.loads(outcome.stdout)
    return counts


def module_sanitized(pyx: str) -> Path:
    """Returns one of our modules, given by its path, compiled with AddressSanitizer and UBSan.

    Its C file, to which a report's lines refer, is next to it.
    """
    name = Path(pyx).stem
    target = cache_folder() / "sanitized" / f"{name}-{digest(pyx)}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            staged = Path(scratch) / "module"
            staged.mkdir()
            source = staged / f"{name}.c"
            if (made := translated(pyx)) is not None:
                shutil.copy(made, source)
            else:
                cython = [sys.executable, "-m", "cython", "-3", "-I", ".", pyx, "-o", str(source)]
                subprocess.run(cython, cwd=REPOSITORY, check=True)
            compiled_sanitized(source, source.with_suffix(".so"))
            put_in_place(staged, target)
    return target / f"{name}.so"


def digest(pyx: str) -> str:
    """Returns a digest of a module's inputs: its source, possible includes, the compilers and flags."""
    beside = (path for folder in INCLUDE[:2] for path in (REPOSITORY / folder).iterdir())
    read = {REPOSITORY / pyx, *(path for path in beside if path.suffix in INCLUDED)}
    said = hashlib.sha256(" ".join((compilers(), *FLAGS)).encode())
    for path in sorted(read):
        said.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return said.hexdigest()[:12]


@functools.cache
def compilers() -> str:
    """Returns the versions of the compilers."""
    try:
        gcc = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("gcc is not installed")
    return f"{gcc.stdout} {importlib.metadata.version('Cython')} {sys.version}"
