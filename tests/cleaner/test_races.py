"""Races between a pass and events of its log: truncation, deletion, another policy, a stop.

KAFKA-631 described the race when it proposed compaction, and the solution: "each truncate operation will
increment this counter [...] the swap operation [...] will only occur if the generations match". Here the
event is run at every step of the pass (every chunk and every operation on the disk, including those of
staging, commit and renames), and the pass at every step of the event. In every order, the result must be
the same as if the groups that were swapped before the event had been swapped, and then the event had
happened: no record is lost, and none comes back.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.cleaner.race import Race
from tests.cleaner.race_events import EVENTS, HARMLESS_EVENTS
from tests.cleaner.race_logs import LOGS, uncleaned_log
from tests.harness.compacted_log import CompactedLog
from tests.harness.examples import IS_SOAK, every
from tests.harness.sidecar_mode import SidecarMode

STRIDE_UNCLEANED = 3
"""Run every n-th step of a pass, from a random one on; a soak runs all, here and below."""
STRIDE = 7
"""The same for a log that was cleaned before or has transactions."""
STRIDE_BESIDE = 17
"""The same if the event must not end the pass."""
SAMPLES = 2000 if IS_SOAK else 20
"""Run every n-th of the thousands of schedules with two switches."""


def prepared(log: str, event: str) -> CompactedLog:
    """Returns the race; about half of the pairs run without keeping sidecars."""
    compacted = LOGS[log]()
    compacted.sidecars = Random(log + event).choice([SidecarMode.KEPT, SidecarMode.OFF])
    return compacted


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("log", LOGS)
def test_whatever_happens_at_any_step_of_a_pass_loses_and_resurrects_no_record(
    log: str, event: str
) -> None:
    race = Race(prepared(log, event), EVENTS[event])
    assert len(race.states) > 3
    assert race.pass_steps > 60

    steps = range(1, race.pass_steps + 1)
    for step in every(STRIDE_UNCLEANED if log == "uncleaned" else STRIDE, steps):
        race.run(step)


@pytest.mark.parametrize("event", HARMLESS_EVENTS)
@pytest.mark.parametrize("log", LOGS)
def test_what_goes_on_beside_a_pass_at_any_step_of_it_changes_nothing_that_it_leaves(
    log: str, event: str
) -> None:
    race = Race(LOGS[log](), HARMLESS_EVENTS[event])

    for step in every(STRIDE_BESIDE, range(1, race.pass_steps + 1)):
        race.run(step)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("log", LOGS)
def test_a_pass_at_any_step_of_what_happens_loses_and_resurrects_no_record(
    log: str, event: str
) -> None:
    """The pass may also be planned in the middle of the event."""
    race = Race(prepared(log, event), EVENTS[event])

    for step in range(1, race.event_steps + 1):
        race.run(step, event_first=True)


@pytest.mark.parametrize("event", EVENTS)
def test_a_pass_that_goes_on_in_the_middle_of_what_happens_loses_and_resurrects_no_record(
    event: str,
) -> None:
    race = Race(uncleaned_log(), EVENTS[event])
    random = Random(event)

    for _ in range(min(SAMPLES, race.event_steps * 40)):
        race.run(random.randint(1, race.pass_steps), random.randint(1, max(race.event_steps, 1)))
