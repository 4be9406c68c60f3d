"""A fenced broker: another one has taken over, so it serves what reads, and writes nothing.

`broker.fenced.by` names the other broker; it is among the properties that are set on this one. When the
broker first started with it is kept beside it, in the node's store:

    /fenced    {"by": "<name>", "since_ms": <wall time>}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from server.config.standby_config import FENCED_BY
from server.metadata.store import Delete, MetadataStore, Put
from storage.files.errors import StorageError

_log = logging.getLogger("server.standby.fence")

KEY = "/fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Why this broker does not serve its clients."""

    by: str
    """The name of the broker that has taken over."""
    since_ms: int | None = None
    """When this broker first started fenced, in wall time; None if that is unknown."""

    @property
    def reason(self) -> str:
        """Why a request is refused."""
        return f"this broker is fenced: {self.by} has taken over"

    def described(self, internal_listener: str) -> str:
        """Returns one line for operators: who has taken over, since when, and how to end it.

        Args:
            internal_listener: its name; empty if there is none.
        """
        since = "" if self.since_ms is None else f" (since {_time_text(self.since_ms)})"
        end = f"kompakt configs unset --broker {FENCED_BY}"
        if internal_listener:
            served = f"only requests that read are served, on {internal_listener}"
            how = f"on that listener, {end} ends it"
        else:
            served = "no listener is open, as inter.broker.listener.name is not set"
            how = f"start with such a listener, on which {end} ends it"
        return f"{self.reason}{since}; {served}; {how}"


async def fence_of(by: str, store: MetadataStore, now_ms: Callable[[], int]) -> Fence | None:
    """Returns the fence of a broker that starts; None if it may serve.

    Args:
        by: the value of `broker.fenced.by`.
        store: the node's.
    """
    try:
        if by:
            return await _kept(by, store, now_ms)
        await store.txn([], [Delete(key=KEY)])
    except StorageError as error:
        # A full disk must not keep a broker from starting fenced.
        _log.warning("cannot keep the time of the fence: %s", error)
    return Fence(by=by) if by else None


async def _kept(by: str, store: MetadataStore, now_ms: Callable[[], int]) -> Fence:
    entry = await store.get(KEY)
    kept = {} if entry is None else json.loads(entry.value)
    if kept.get("by") != by:
        kept = {"by": by, "since_ms": now_ms()}
        await store.txn([], [Put(key=KEY, value=json.dumps(kept, separators=(",", ":")))])
    return Fence(by=by, since_ms=kept["since_ms"])


def _time_text(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
