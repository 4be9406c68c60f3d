"""Tells of properties that were given and do nothing. Imported only if there are some."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable

from server.kafka_properties import is_known_to_kafka

_log = logging.getLogger("server.config")

LIKENESS_OF_A_SLIP = 0.92
"""Two names that share this much differ in a letter or two: 0.97 for log.segmnt.bytes."""


def tell_of_unused(names: Iterable[str], known: Collection[str]) -> None:
    """One line for all of Kafka's properties that do nothing here; one for each unknown one."""
    of_kafka: list[str] = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known, n=1)
        # Kafka's names are known by their prefixes: a misspelt one is told by what it is near to.
        if is_known_to_kafka(name) and not (near and _likeness(name, near[0]) > LIKENESS_OF_A_SLIP):
            of_kafka.append(name)
            continue
        hint = f"; did you mean {near[0]}?" if near else ""
        _log.warning("%s: unknown property, ignored%s", name, hint)
    if of_kafka:
        _log.info("Kafka properties without effect here: %s", ", ".join(of_kafka))


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
