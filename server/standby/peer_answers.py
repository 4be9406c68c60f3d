"""Decides, from what a broker's peers answer, whether one of them was promoted meanwhile. Pure.

A broker leads the metadata's log in a term. Each start that writes raises it by one, and a promotion by
at least `EPOCH_STEP`, so terms tell a promoted broker from one that has only started more often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from server.metadata.reign import EPOCH_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFound:
    """A peer that has answered."""

    address: str
    term: int
    """The term of its metadata log."""
    leads: bool
    """Whether it leads in that term. A fenced broker does not."""

    def __str__(self) -> str:
        state = "leads" if self.leads else "is fenced"
        return f"{self.address} {state} in term {self.term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost:
    """A peer without an answer that counts."""

    address: str
    reason: str

    def __str__(self) -> str:
        is_named = self.address in self.reason
        return self.reason if is_named else f"{self.address}: {self.reason}"


Peer = PeerFound | PeerLost


def counted(peer: Peer, own_term: int) -> Peer:
    """Returns an answer as it counts: a broker that leads in our own term says nothing about us."""
    if isinstance(peer, PeerFound) and peer.leads and peer.term == own_term:
        return PeerLost(
            address=peer.address,
            reason=f"leads in our term, {own_term}: is it this broker itself, or a copy of its data?",
        )
    return peer


def successor(peers: Iterable[Peer], own_term: int) -> PeerFound | None:
    """Returns the peer that was promoted since this broker led last; None if there is none."""
    promoted = [
        each
        for each in peers
        if isinstance(each, PeerFound) and each.leads and each.term - own_term >= EPOCH_STEP // 2
    ]
    return max(promoted, key=lambda each: each.term, default=None)


def are_lost(peers: Iterable[Peer]) -> bool:
    """Returns whether no peer's answer counts, so that one may have been promoted."""
    return not any(isinstance(each, PeerFound) for each in peers)
