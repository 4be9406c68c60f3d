"""Which reports of the cleaner become events."""

from __future__ import annotations

from typing import Any

from cleaner.pacing.quarantine import Quarantine
from server.events.event import Event, Failed, Started
from server.events.probe import EventProbe
from server.runtime.clock import SystemClock
from storage.formats.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Offers:
    """What was offered to the writer."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def offer(self, _: TopicPartition, event: Event) -> None:
        self.events.append(event)


def test_a_sweep_that_fails_has_no_event_because_its_start_has_none() -> None:
    offers: Any = Offers()
    probe = EventProbe(offers, broker=1, clock=SystemClock())
    entry = Quarantine(rest_ms=1, rest_ms_max=1).add(ORDERS, "rotten", kind="corrupt_batch", now=0)

    probe.quarantined(entry)
    assert offers.events == []

    probe.pass_started("orders", 0)
    probe.quarantined(entry)
    assert [type(each) for each in offers.events] == [Started, Failed]
