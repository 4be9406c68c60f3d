"""A fenced broker: another one has taken over, or may have, so it serves what reads and writes nothing.

`broker.fenced.by` names the other broker; it is among the properties that are set on this one. When the
broker first started with it is kept beside it, in the node's store:

    /fenced    {"by": "<name>", "since_ms": <wall time>}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from server.config.broker_configs import BrokerConfigs
from server.config.changes import ConfigChange, Operation
from server.config.standby_config import FENCED_BY, WAIT
from server.metadata.store import Delete, MetadataStore, Put
from server.standby.peer_answers import Peer, PeerFound, are_lost, successor
from storage.files.errors import StorageError

if TYPE_CHECKING:
    from server.standby.peers import Peers

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


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why this broker does not serve its clients yet: a peer may have taken over, and none answers."""

    peers: Sequence[Peer]
    by = ""
    """Nobody that it knows of."""

    @property
    def reason(self) -> str:
        """Why a request is refused."""
        told = "; ".join(map(str, self.peers))
        return f"this broker waits until a peer answers, as another one may have taken over: {told}"

    def described(self, internal_listener: str) -> str:
        """Returns one line for operators: what it waits for, and how to end it."""
        return (
            f"{self.reason}; only requests that read are served, on {internal_listener}; to serve"
            " without an answer, start with standby.on.lost.peer=serve"
        )


async def fence_at_start(
    configs: BrokerConfigs,
    store: MetadataStore,
    peers: Peers | None,
    *,
    now_ms: Callable[[], int],
) -> Fence | Waiting | None:
    """Returns why a broker that starts does not serve; None if it may serve.

    It sets `broker.fenced.by` if one of its peers was promoted meanwhile.

    Args:
        store: the node's.
        peers: the brokers to ask; None if there are none.
    """
    by, found = configs.config.broker_fenced_by, list[Peer]()
    if peers is not None and not by:
        found = await peers.ask()
        for each in found:
            level = logging.INFO if isinstance(each, PeerFound) else logging.WARNING
            _log.log(level, "standby.peers: %s", each)
        promoted = successor(found, peers.own_term)
        if promoted is not None:
            by = f"{promoted.address} (term {promoted.term})"
            await _set_fence(configs, by)
    fence = await fence_of(by, store, now_ms)
    if fence is None and found and are_lost(found) and configs.config.standby_on_lost_peer == WAIT:
        return Waiting(found)
    return fence


async def _set_fence(configs: BrokerConfigs, by: str) -> None:
    """Set the property. If that fails, the broker is fenced nevertheless, and asks at its next start."""
    change = ConfigChange(name=FENCED_BY, operation=Operation.SET, value=by)
    try:
        refused = await configs.alter_own([change])
    except StorageError as error:
        _log.error("cannot keep %s=%s: %s", FENCED_BY, by, error)
        return
    if refused is not None:
        _log.error("cannot keep %s=%s: %s", FENCED_BY, by, refused.message)


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
