"""What an answer of the source says about a mirrored partition: pure, from both logs' facts.

The mirror asks for records from its end on, and says the epoch of its last record. The source answers
with records, or that its log diverges (KIP-595), or with an error. Of OFFSET_OUT_OF_RANGE it has to be
asked where its log starts and ends: the error alone does not say which records are missing, or on which
side.

    source  start ........ end          mirror  start ..... end
            above mirror's end   -> records are gone, or the mirror follows the start
                     below mirror's end -> the source has lost records

Source: founding document 002.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.replication.divergence import Place, Remedy, remedy_for
from server.replication.state_table import Guard
from storage.state.leader_epochs import EpochEnd

UNKNOWN = Offset(-1)
CREATE_AGAIN = (
    "promote the mirror to keep it; to copy once more, delete it then and resume its link"
)
RESYNC = "kompakt replica resync copies it once more, or promote the mirror to keep it"
PUT_ASIDE = (
    "kompakt replica resync --put-aside copies it once more and keeps this log beside the copy, or"
    " promote the mirror to keep it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of the source, as its Metadata and DescribeConfigs show it."""

    topic_id: uuid.UUID
    partitions_count: int
    compacts: bool
    deletes: bool
    """Whether its retention removes records by age or size."""
    delete_retention_ms: int = 86_400_000
    holds_tombstones: bool = False
    """Whether its cleaner keeps tombstones that this link's group has not passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAnswer:
    """What the source says about one partition."""

    error_code: int = ErrorCode.NONE
    error: str = ""
    """A sentence in place of the code's text, for example if there was no answer."""
    start: Offset = UNKNOWN
    """Where its log starts; -1 if it does not say."""
    high_watermark: Offset = UNKNOWN
    diverging: EpochEnd | None = None
    """The last epoch that both logs may have in common, and where it ends at the source."""
    first_gap: Offset | None = None
    """The first offset without a record at or above the mirror's end; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The guard that holds, and what people and the copier need to know."""

    guard: Guard
    reason: str = ""
    """A sentence with offsets; empty if everything is well."""
    offset: Offset | None = None
    """Where to cut, or to which start to skip."""


FITS = Verdict(guard=Guard.FITS)


def judge(
    answer: SourceAnswer,
    place: Place,
    *,
    topic: SourceTopic,
    mirrored_id: uuid.UUID,
    sparse_level: int,
    missed_tombstones: str = "",
    may_cut: bool = True,
    may_have_own: bool = False,
) -> Verdict:
    """Returns the first guard that holds, in the table's order.

    Args:
        topic: the source's topic now.
        mirrored_id: the id of the topic that the mirror was made from.
        sparse_level: this cluster's level of the feature `sparse.log`.
        missed_tombstones: why the source may have removed tombstones that are not here; empty if it
            cannot have.
        may_cut: whether records that the source does not have may be cut off. Those of a standby may be
            the last copy: its log is copied once more instead, and the old one put aside.
        may_have_own: whether there may be records here that the source never had. Such a log is not
            emptied where the source has deleted its own records.
    """
    if topic.topic_id != mirrored_id:
        return _final(
            Guard.OTHER_TOPIC,
            "the source's topic was deleted and created again, so its records are not those of this"
            f" mirror: {CREATE_AGAIN}",
        )
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.start >= 0:
        return _out_of_range(answer, place, topic, may_have_own=may_have_own)
    if answer.error or answer.error_code:
        return Verdict(guard=Guard.ERROR, reason=answer.error or _text_of(answer.error_code))
    if sparse_level < 1 and (topic.compacts or answer.first_gap is not None):
        return Verdict(guard=Guard.TOO_OLD, reason=_too_old(topic, answer.first_gap))
    if answer.diverging is not None:
        return _diverging(answer.diverging, answer.high_watermark, place, may_cut=may_cut)
    if missed_tombstones:
        return _final(Guard.MISSED_TOMBSTONES, missed_tombstones)
    if may_have_own and not shows_copy(answer, place):
        return _gone(answer.start, place, may_have_own=True)
    return FITS


def shows_copy(answer: SourceAnswer, place: Place) -> bool:
    """Returns whether an answer to a fetch shows that the source had every record that is here: it has
    the epoch of the last one, up to the end here or beyond.

    A source that starts at the end here has forgotten which epochs it had before. It then says of the
    epoch of the last record that it ended there, whether it had this record or another one.
    """
    return (
        not answer.error
        and not answer.error_code
        and answer.diverging is None
        and 0 <= answer.start < place.end
    )


def _out_of_range(
    answer: SourceAnswer, place: Place, topic: SourceTopic, *, may_have_own: bool
) -> Verdict:
    if answer.high_watermark < place.end:
        return _lost(answer.high_watermark, place.end)
    if answer.start == answer.high_watermark == place.end and not may_have_own:
        # It has forgotten its epochs with its records, so there is nothing to compare.
        return FITS
    if answer.start < place.end or (answer.start == place.end and not may_have_own):
        return _final(
            Guard.SOURCE_LOST,
            f"the source knows no epoch {place.last_epoch}, that of the last record here: it is not the"
            f" log that was copied, perhaps an older backup of it: {PUT_ASIDE}",
        )
    if topic.deletes and not may_have_own:
        reason = _starts_later(answer.start, place)
        return Verdict(guard=Guard.STARTS_LATER, reason=reason, offset=answer.start)
    return _gone(answer.start, place, may_have_own=may_have_own)


def _gone(start: Offset, place: Place, *, may_have_own: bool) -> Verdict:
    why = "though its topic is only compacted, so an operator has deleted them there"
    if may_have_own:
        why = "and this log may have some that the source never had"
    reason = f"{_starts_later(start, place)}, {why}: {PUT_ASIDE}"
    return Verdict(guard=Guard.RECORDS_GONE, reason=reason, offset=start)


def _starts_later(start: Offset, place: Place) -> str:
    if start <= place.end:
        return f"the source's log starts at {start}, and all records before are gone"
    return f"the source's log starts at {start}, the records from {place.end} on are gone"


def _diverging(
    diverging: EpochEnd, high_watermark: Offset, place: Place, *, may_cut: bool
) -> Verdict:
    epoch, end = diverging
    if high_watermark <= end < place.end:
        return _lost(high_watermark, place.end)
    remedy, offset = remedy_for(diverging, place)
    if remedy is Remedy.NOTHING:
        return FITS
    where = (
        f"the logs diverge at offset {offset}, after epoch {epoch}; this one ends at {place.end}"
    )
    if remedy is Remedy.RESYNC:
        cleaned = place.cut_offset_min
        return _final(
            Guard.DIVERGES_IN_CLEAN,
            f"{where} and is compacted up to {cleaned}, so a cut would lose keys: {RESYNC}",
        )
    if not may_cut:
        return _final(Guard.DIVERGES_IN_CLEAN, f"{where}, with records of its own: {RESYNC}")
    return Verdict(guard=Guard.DIVERGES, reason=where, offset=offset)


def _lost(high_watermark: Offset, end: Offset) -> Verdict:
    return _final(
        Guard.SOURCE_LOST,
        f"the source's log ends at {high_watermark}, this one at {end}: the source has lost records that"
        f" are here: {PUT_ASIDE}",
    )


def _too_old(topic: SourceTopic, first_gap: Offset | None) -> str:
    gap = "by its policy" if first_gap is None else f"first gap at offset {first_gap}"
    return (
        f"the topic is compacted at the source ({gap}); this cluster's sparse.log is 0, 1 is needed:"
        " kompakt features upgrade sparse.log=1"
    )


def _final(guard: Guard, reason: str) -> Verdict:
    return Verdict(guard=guard, reason=reason)


def _text_of(code: int) -> str:
    known = ErrorCode.from_wire(code)
    return f"the source answered {known.name}: {known.message}"
