"""Logs configured properties that have no effect. Imported only if there are some."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable

from server.config.kafka_properties import is_known_to_kafka

_log = logging.getLogger("server.config.config")

TYPO_SIMILARITY_MIN = 0.92
"""Two names this similar differ in a letter or two; log.segmnt.bytes has 0.97."""


def log_unused(names: Iterable[str], known: Collection[str]) -> None:
    """Log one line for all Kafka properties without effect here, and a warning for each unknown name."""
    of_kafka: list[str] = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known, n=1)
        # A typo often keeps one of Kafka's prefixes; only its similarity to a known name reveals it.
        if is_known_to_kafka(name) and not (
            near and _similarity(name, near[0]) > TYPO_SIMILARITY_MIN
        ):
            of_kafka.append(name)
            continue
        hint = f"; did you mean {near[0]}?" if near else ""
        _log.warning("%s: unknown property, ignored%s", name, hint)
    if of_kafka:
        _log.info("Kafka properties without effect here: %s", ", ".join(of_kafka))


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
