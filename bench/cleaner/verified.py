"""The cost of verifying a cleaning pass."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import clean_whole, copy_of
from bench.cleaner.pass_shapes import LARGE, MOSTLY_KEPT, SMALL, Shape, log_of


def verification_figures(pairs: int) -> list[Figure]:
    """Compare a pass's time with that of an unverified one. Goal: at most 1.15 of it."""
    return [verification_figure(shape, pairs) for shape in (SMALL, LARGE, MOSTLY_KEPT)]


def verification_figure(shape: Shape, pairs: int) -> Figure:
    kept: list[float] = []
    with log_of(shape) as source:

        def seconds(*, verify: bool) -> float:
            with copy_of(source) as log:
                started = time.perf_counter()
                report = clean_whole(log, verify=verify)
                kept.append(report.bytes_after / report.bytes_before)
                return time.perf_counter() - started

        figure = interleaved(
            f"verified cleaning, {shape.label}",
            "s a pass",
            lambda: seconds(verify=True),
            lambda: seconds(verify=False),
            limit_is="the same pass, not verified: the ratio is what verification costs",
            pairs=pairs,
        )
    return replace(figure, note=f"{kept[-1]:.0%} of the bytes kept")
