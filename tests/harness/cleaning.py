"""Waits, by the broker's metrics, until the cleaner has nothing left to do in a topic."""

from __future__ import annotations

import time
from collections.abc import Callable

from metrics import partition_names
from tests.harness.broker_process import samples, scrape

SECONDS_MAX = 300.0


class NotCleaned(AssertionError):
    """The cleaner did not finish in time; the message gives the progress of each partition."""


def wait_until_clean(
    metrics_address: str,
    topic: str,
    *,
    seconds_max: float = SECONDS_MAX,
    on_look: Callable[[float], None] = lambda share: None,
) -> None:
    """Wait until every partition is clean up to its log end, with an empty active segment.

    The topic must roll idle segments soon (`segment.ms`) and clean everything dirty
    (`min.cleanable.dirty.ratio=0`); `metrics_address` is host:port. Each check calls `on_look` with the
    share of the offsets that is clean.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        text = scrape(metrics_address)
        clean = samples(text, partition_names.CLEAN_OFFSET.name, topic=topic)
        ends = samples(text, partition_names.LOG_END_OFFSET.name, topic=topic)
        on_look(sum(clean) / max(sum(ends), 1))
        if ends and clean == ends:
            return
        if time.monotonic() > deadline:
            raise NotCleaned(f"{topic} after {seconds_max} s: clean up to {clean} of {ends}")
        time.sleep(0.1)
