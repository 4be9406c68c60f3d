"""What a slot says: how far a mirror is, what a restart needs, and why it does not move. Pure.

    committed offset   the mirror's synced end; during a resync the new copy's, but not beyond the log's
    metadata           {"safe_ms": ..., "state": "copying", "reason": "", "resync": {"cause": ...,
                       "puts_aside": false, "id": ..., "safe_ms": ...}}; "resync" only while one is under
                       way. Its `safe_ms` is the new copy's, the other one the old log's

After a restart a resync begins again, unless the log has its id (`PartitionLog.copy_id`): then the swap
was durable, and the crash came before the next slot.

A mirror that has everything is safe since its last answer, so `safe_ms` moves all the time. It is read
only after a restart, and an older one only makes the mirror more careful: the time that it may lag by
then (`tombstones.py`) is shorter by as much. So a slot whose `safe_ms` alone has moved is committed
again only when it is older by a tenth of the source's `delete.retention.ms`, the share that the watch
keeps for clocks that differ, too. With the default of a day that is 2.4 hours, so the renewal of each
hour comes first, and an idle mirror costs the source one small record an hour.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

from protocol.wire.numbers import Offset
from server.replication.state_table import Guard, MirrorState

REASON_MAX = 500
"""The most characters of a reason in a slot: Apache Kafka takes 4,096 bytes of metadata."""
SAFE_SHARE = 10
"""A slot's `safe_ms` is older than the mirror's by at most one in so many parts of
`delete.retention.ms`."""


class ResyncMemory(NamedTuple):
    """What a restart needs to begin a resync again, or to see that it was complete."""

    cause: Guard
    puts_aside: bool
    id: str = ""
    """Of the resync, and of its copy once that has replaced the log."""
    safe_ms: int | None = None
    """`TombstoneWatch.safe_ms` of the new copy; None until that is made."""


class SlotContent(NamedTuple):
    """The slot of one mirror."""

    offset: Offset
    state: MirrorState
    reason: str
    safe_ms: int | None
    """`TombstoneWatch.safe_ms`."""
    resync: ResyncMemory | None = None
    """The resync that is under way."""

    def metadata(self) -> str:
        """Returns the metadata of the commit."""
        content: dict[str, object] = {
            "safe_ms": self.safe_ms,
            "state": str(self.state),
            "reason": self.reason[:REASON_MAX],
        }
        if self.resync is not None:
            content["resync"] = {**self.resync._asdict(), "cause": self.resync.cause.name}
        return json.dumps(content, separators=(",", ":"))

    def has_news(self, stored: SlotContent, delete_retention_ms: int) -> bool:
        """Returns whether it is to be committed in place of what the source has.

        Args:
            delete_retention_ms: the source's, of this topic.
        """
        if self[:3] != stored[:3] or _without_time(self.resync) != _without_time(stored.resync):
            return True
        times = [(self.safe_ms, stored.safe_ms)]
        if self.resync is not None and stored.resync is not None:
            times.append((self.resync.safe_ms, stored.resync.safe_ms))
        return any(_has_moved(*each, delete_retention_ms) for each in times)


def _without_time(resync: ResyncMemory | None) -> ResyncMemory | None:
    return None if resync is None else resync._replace(safe_ms=None)


def _has_moved(now: int | None, stored: int | None, delete_retention_ms: int) -> bool:
    if now is None or stored is None:
        return now != stored
    return SAFE_SHARE * abs(now - stored) > delete_retention_ms


def safe_ms_of(metadata: str | None, copy_id: UUID | None = None) -> int | None:
    """Returns what a slot remembers of the log's `TombstoneWatch.safe_ms`; None if it remembers nothing.

    Args:
        copy_id: `PartitionLog.copy_id`.
    """
    content = _content(metadata)
    resync = _resync(content)
    if resync is not None and resync.id == str(copy_id):
        return resync.safe_ms
    return _time(content)


def resync_of(metadata: str | None, copy_id: UUID | None = None) -> ResyncMemory | None:
    """Returns the resync that a slot remembers; None if none was under way, or if its copy has taken the
    log's place.

    Args:
        copy_id: `PartitionLog.copy_id`.
    """
    found = _resync(_content(metadata))
    return None if found is None or found.id == str(copy_id) else found


def _resync(content: dict[str, Any]) -> ResyncMemory | None:
    found = content.get("resync")
    if not isinstance(found, dict):
        return None
    cause, puts_aside = found.get("cause"), found.get("puts_aside") is not False
    if not isinstance(cause, str) or cause not in Guard.__members__:
        return None
    return ResyncMemory(Guard[cause], puts_aside, str(found.get("id", "")), _time(found))


def _time(content: dict[str, Any]) -> int | None:
    found = content.get("safe_ms")
    return found if isinstance(found, int) else None


def _content(metadata: str | None) -> dict[str, Any]:
    try:
        content = json.loads(metadata or "")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
