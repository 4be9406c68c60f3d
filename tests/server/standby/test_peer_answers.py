"""What a broker concludes from its peers' terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.metadata.reign import EPOCH_STEP
from server.standby.peer_answers import (
    Peer,
    PeerFound,
    PeerLost,
    are_lost,
    counted,
    successor,
)

LOST = PeerLost(address="c:1", reason="no answer within 2 s")


def found(term: int, *, leads: bool = True, address: str = "b:1") -> PeerFound:
    return PeerFound(address=address, term=term, leads=leads)


@pytest.mark.parametrize(
    ("peers", "by"),
    [
        pytest.param([found(10_012)], "b:1", id="promoted"),
        pytest.param([found(5_012)], "b:1", id="half_a_step"),
        pytest.param([found(5_011)], None, id="started_more_often"),
        pytest.param([found(3)], None, id="older"),
        pytest.param([found(10_012, leads=False)], None, id="promoted_and_fenced_again"),
        pytest.param([LOST], None, id="lost"),
        pytest.param([], None, id="none"),
        pytest.param([found(10_012), found(20_012, address="d:1")], "d:1", id="the_last_promoted"),
        pytest.param([LOST, found(3), found(10_012, address="d:1")], "d:1", id="one_of_them"),
    ],
)
def test_a_peer_that_leads_half_a_step_above_was_promoted(
    peers: list[Peer], by: str | None
) -> None:
    promoted = successor(peers, 12)

    assert (None if promoted is None else promoted.address) == by


@given(
    start=st.integers(1, 1_000_000),
    own_starts=st.integers(0, EPOCH_STEP // 2),
    peer_starts=st.integers(0, 1_000),
)
def test_the_source_of_a_promotion_yields_and_the_promoted_does_not(
    start: int, own_starts: int, peer_starts: int
) -> None:
    """However often either has started since, within half a step."""
    own, peer = start + own_starts, start + EPOCH_STEP + peer_starts

    assert successor([found(peer)], own) is not None
    assert successor([found(own)], peer) is None


@pytest.mark.parametrize(
    ("peers", "is_lost"),
    [
        ([LOST], True),
        ([LOST, found(3)], False),
        ([found(3, leads=False)], False),
        ([found(10_012)], False),
    ],
)
def test_a_peer_that_answers_is_not_lost_whatever_it_says(peers: list[Peer], is_lost: bool) -> None:
    assert are_lost(peers) is is_lost


def test_a_leader_in_our_own_term_does_not_count() -> None:
    """It is this broker itself, on a list that both brokers have, or a copy of its data."""
    same = counted(found(12), 12)

    assert isinstance(same, PeerLost)
    assert str(same).startswith("b:1: leads in our term, 12")
    assert counted(found(12, leads=False), 12) == found(12, leads=False)
    assert counted(found(13), 12) == found(13)
    assert counted(LOST, 12) is LOST
