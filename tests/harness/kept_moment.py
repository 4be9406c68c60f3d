"""A log that is kept at a moment, and the copy of it that is linked later."""

from __future__ import annotations

from dataclasses import replace

from storage.files.files import FileSystem
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.segment.reader import Isolation
from storage.state.moment import Moment
from storage.verify.log import verify_log
from tests.harness.compacted_log import CONFIG, identity, opening
from tests.harness.log_builder import records_in
from tests.harness.log_home import answers

COPY = "data/snapshots/1.part/orders/0"


def begin_moment(*logs: PartitionLog) -> None:
    """Prepare logs, and begin their moment."""
    moment = Moment()
    for log in logs:
        log.prepare_moment(moment)
    moment.has_begun = True


def link(log: PartitionLog, directory: str = COPY) -> LinkedLog:
    """Take the moment unless an append has, link the log, and end the moment."""
    log.take_moment(0)
    try:
        return log.link_moment(directory)
    finally:
        log.end_moment()


def opened_copy(
    fs: FileSystem,
    directory: str = COPY,
    *,
    its: LogIdentity | None = None,
    config: LogConfig = CONFIG,
    is_cut: bool = False,
) -> PartitionLog:
    """Returns the copy, opened as after a clean stop; nothing in it may be wrong.

    Args:
        is_cut: whether it was cut, so that a segment may keep the largest time of what is gone.
    """
    its = replace(its or identity(), directory=directory)
    findings = [str(each) for each in verify_log(fs, its, was_clean=True).findings]
    if is_cut:
        findings = [each for each in findings if not each.endswith(", as after a truncation")]
    assert not findings
    return open_log(fs, its, config, opening(is_clean=True, leader_epoch=1 << 20))


def values(
    log: PartitionLog, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> list[bytes | None]:
    """Returns the values of the records up to the end of what an isolation level may read."""
    found: list[bytes | None] = []
    for answer in answers(log, isolation, max_bytes=1 << 20):
        found += [each.value for each in records_in(answer.data) if each.offset >= answer.offset]
    return found
