"""What appends and passes cost in this checkout beside another one, such as the release before.

    KOMPAKT_BENCH_BEFORE=../before python -m bench releases

Both checkouts run this file in turn, so it uses only what both have: none of the features that came in
between. What requests cost is measured by `bench/peers/release_requests.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.base.batches import keyed_batch
from bench.base.figure import Figure, of_pairs
from bench.cleaner.cleaned_log import build_log, clean_whole, extend_log, opened

if TYPE_CHECKING:
    from bench.base.checkout import Checkout

TEMPLATES = 400
RECORDS_EACH_BATCH = 1_000
KEYS = 400_000
VALUE_BYTES = 100
APPENDED, FIRST, NEXT = 600, 2_000, 100
"""Batches that are appended, and that the two passes clean."""
NAMES = {
    "append": "append, 600,000 records, 1,000 to a batch",
    "first": "first pass, 2 million records, 400,000 keys",
    "next": "next pass, 100,000 records more",
}


def release_figures(pairs: int) -> list[Figure]:
    """Measure the processor time of this checkout beside that of the one in KOMPAKT_BENCH_BEFORE.

    Raises:
        RuntimeError: the variable does not name a checkout with an environment.
    """
    # Not above: the other release, which imports this file, may have no such module.
    from bench.base.checkout import THIS_CHECKOUT, other_checkout

    other = other_checkout()
    taken = [(_costs_in(THIS_CHECKOUT), _costs_in(other)) for _ in range(pairs)]
    return [
        of_pairs(
            name,
            "CPU s",
            [(here[what], there[what]) for here, there in taken],
            limit_is=other.name,
        )
        for what, name in NAMES.items()
    ]


def _costs_in(checkout: Checkout) -> dict[str, float]:
    """Run this file with the code of a checkout. Returns the processor seconds of each measured work."""
    answer = subprocess.run(
        [checkout.python, str(Path(__file__).absolute())],
        cwd=checkout.folder,
        env=os.environ | {"PYTHONPATH": str(checkout.folder)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(answer.stdout))


def costs() -> dict[str, float]:
    """Returns the processor seconds of each measured work, with the code that is imported here."""
    batches = [
        keyed_batch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES, keys=KEYS, seed=seed)
        for seed in range(TEMPLATES)
    ]

    def some(count: int) -> list[bytes]:
        return [batches[number % TEMPLATES] for number in range(count)]

    with tempfile.TemporaryDirectory() as folder:
        directory, other = Path(folder) / "log", Path(folder) / "appended"
        append = _cpu_seconds(lambda: build_log(other, some(APPENDED)))
        build_log(directory, some(FIRST))
        first = _clean_at(directory)
        extend_log(directory, some(NEXT))
        return {"append": append, "first": first, "next": _clean_at(directory)}


def _clean_at(directory: Path) -> float:
    os.sync()
    log = opened(directory)
    try:
        return _cpu_seconds(lambda: clean_whole(log))
    finally:
        log.close()


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    json.dump(costs(), sys.stdout)
