"""What a slot says: how far a mirror is, what a restart needs, and why it does not move. Pure.

    committed offset   the mirror's synced end; during a resync the new copy's, but not beyond the log's
    metadata           {"safe_ms": ..., "state": "copying", "reason": "", "resync": {"cause": ...,
                       "puts_aside": false}}; "resync" only while one is under way, which begins again
                       after a restart. `safe_ms` is the old log's until then

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

from protocol.wire.numbers import Offset
from server.replication.state_table import Guard, MirrorState

REASON_MAX = 500
"""The most characters of a reason in a slot: Apache Kafka takes 4,096 bytes of metadata."""
SAFE_SHARE = 10
"""A slot's `safe_ms` is older than the mirror's by at most one in so many parts of
`delete.retention.ms`."""


class ResyncMemory(NamedTuple):
    """What a restart needs to begin a resync again."""

    cause: Guard
    puts_aside: bool


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
            cause = self.resync.cause.name
            content["resync"] = {"cause": cause, "puts_aside": self.resync.puts_aside}
        return json.dumps(content, separators=(",", ":"))

    def has_news(self, stored: SlotContent, delete_retention_ms: int) -> bool:
        """Returns whether it is to be committed in place of what the source has.

        Args:
            delete_retention_ms: the source's, of this topic.
        """
        if self[:3] != stored[:3] or self.resync != stored.resync:
            return True
        if self.safe_ms is None or stored.safe_ms is None:
            return self.safe_ms != stored.safe_ms
        return SAFE_SHARE * abs(self.safe_ms - stored.safe_ms) > delete_retention_ms


def safe_ms_of(metadata: str | None) -> int | None:
    """Returns what a slot remembers of `TombstoneWatch.safe_ms`; None if it remembers nothing."""
    found = _content(metadata).get("safe_ms")
    return found if isinstance(found, int) else None


def resync_of(metadata: str | None) -> ResyncMemory | None:
    """Returns the resync that a slot remembers; None if none was under way."""
    found = _content(metadata).get("resync")
    if not isinstance(found, dict):
        return None
    cause = found.get("cause")
    if not isinstance(cause, str) or cause not in Guard.__members__:
        return None
    return ResyncMemory(Guard[cause], found.get("puts_aside") is not False)


def _content(metadata: str | None) -> dict[str, Any]:
    try:
        content = json.loads(metadata or "")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
