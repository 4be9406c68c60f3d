"""The disk becomes full at any byte that a pass writes: only the pass is postponed."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from storage.files.errors import NoSpace
from storage.files.paths import KEYS
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.groups import watched_swaps
from tests.harness.memory_fs import Loss
from tests.harness.sidecar_mode import SidecarMode

MODES = (SidecarMode.KEPT, SidecarMode.OFF, SidecarMode.MISSING)
Entry = tuple[int, bytes | None, bytes | None]


def dirty_log(sidecars: SidecarMode) -> CompactedLog:
    """Returns a cleaned log with expired tombstones that is dirty again; some segments have sidecars."""
    log = CompactedLog(sidecars=sidecars)
    log.append_segment((b"a", b"1"), (b"b", b"1" * 200), (b"t", None))
    log.append_segment((b"a", b"2"), (b"c", b"1"))
    log.clean()
    log.now_ms += CONFIG.delete_retention_ms
    log.append_segment((b"b", b"2"), (b"d", None))
    log.append_segment((b"c", b"2"), (b"e", b"1"))
    return log


def full_disk_of(log: CompactedLog, space: int) -> str:
    """Clean on a disk with limited space. Returns the error that ends the pass, if any."""
    log.fs.faults.space = space
    try:
        log.execute(log.plan())
    except NoSpace as full:
        return str(full)
    finally:
        log.fs.faults.heal()
    return ""


@pytest.mark.parametrize("sidecars", MODES)
def test_a_disk_that_is_full_at_any_byte_puts_the_pass_off_and_leaves_nothing_of_it(
    sidecars: SidecarMode,
) -> None:
    whole = dirty_log(sidecars)
    states = [whole.pairs()]
    with watched_swaps(lambda: states.append(whole.pairs())):
        whole.execute(whole.plan())
    messages: list[str] = []
    log = dirty_log(sidecars)

    for space in count(0, 17):
        log = dirty_log(sidecars)
        message = full_disk_of(log, space)
        if not message:
            break
        messages.append(message)
        assert log.log.offline_reason is None
        assert log.pairs() in states
        assert not [name for name in log.files() if name.endswith((".cleaned", ".tmp"))]
        check_still_works(log, whole.pairs())

    assert log.pairs() == whole.pairs()
    assert all("No space left on device" in message for message in messages)
    assert {True, False} == {KEYS in message for message in messages}


def check_still_works(log: CompactedLog, expected: list[Entry]) -> None:
    """Check that the log still works, also after a crash."""
    crashed = CompactedLog()
    crashed.fs, crashed.now_ms, crashed.log = log.fs, log.now_ms, log.log
    crashed.fs = log.fs.after_crash(Loss.TORN, Random(0))
    crashed.reopen(is_clean=False, loss=Loss.NOTHING)
    for each in (log, crashed):
        each.execute(each.plan())
        assert each.pairs() == expected
