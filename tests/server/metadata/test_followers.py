"""What a leader allows its followers: how many downloads, how many bytes, and for how long."""

from __future__ import annotations

import pytest

from replog.entry import SnapshotId
from server.metadata.followers import FOLLOWERS_MAX, PIN_SECONDS, Followers

FIRST, SECOND = SnapshotId(10, 1), SnapshotId(20, 1)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def followers(clock: Clock) -> Followers:
    return Followers(snapshots_max=2, bytes_per_second=1000, clock=clock)


def test_only_so_many_followers_download_at_the_same_time(followers: Followers) -> None:
    assert followers.admit("a", FIRST)
    assert followers.admit("b", FIRST)
    assert not followers.admit("c", FIRST)
    assert followers.admit("a", FIRST), "it continues"
    followers.end_download("b")
    assert followers.admit("c", FIRST)
    assert followers.downloading_count == 2


def test_a_download_keeps_its_snapshot_until_a_minute_after_its_last_piece(
    followers: Followers, clock: Clock
) -> None:
    assert followers.admit("a", FIRST)
    clock.now_s += PIN_SECONDS - 1
    assert followers.pinned() == {FIRST}
    assert followers.admit("a", FIRST)
    clock.now_s += PIN_SECONDS - 1
    assert followers.pinned() == {FIRST}
    clock.now_s += 1
    assert followers.pinned() == set()
    assert followers.downloading_count == 0


def test_a_follower_that_takes_another_snapshot_lets_the_first_go(followers: Followers) -> None:
    followers.admit("a", FIRST)
    followers.admit("a", SECOND)
    assert followers.pinned() == {SECOND}


def test_the_last_byte_counts_as_an_install_and_makes_room(followers: Followers) -> None:
    facts = followers.seen("a", "host")
    followers.admit("a", FIRST)
    followers.took(facts, 400, 1000)
    assert (facts.position, facts.size, facts.installs) == (400, 1000, 0)
    followers.took(facts, 1000, 1000)
    assert (facts.position, facts.installs) == (None, 1)
    assert followers.pinned() == set()


def test_followers_pay_for_their_bytes_together(followers: Followers, clock: Clock) -> None:
    assert followers.charge(1000) == 0, "a second's worth is no reason to pause"
    assert followers.charge(1000) == pytest.approx(1.0)
    assert followers.charge(500) == pytest.approx(1.5)
    clock.now_s += 2.5
    assert followers.charge(1000) == 0


def test_the_least_recently_seen_follower_is_forgotten_first(followers: Followers) -> None:
    for number in range(FOLLOWERS_MAX):
        followers.seen(f"f{number}", "host", number)
    followers.seen("f0", "host", 5)
    followers.seen("new", "host", 0)
    names = [each.id for each in followers.all()]
    assert len(names) == FOLLOWERS_MAX
    assert "f1" not in names
    assert names[-2:] == ["f0", "new"]


def test_programs_get_lag_and_time_since_the_last_request(
    followers: Followers, clock: Clock
) -> None:
    followers.seen("a", "first-host", 90)
    clock.now_s += 2.5
    followers.took(followers.seen("b", "second-host"), 3, 10)
    clock.now_s += 1
    b, a = followers.as_json(100)
    assert a == {
        "id": "a", "host": "first-host", "end": 90, "lag": 10, "seen_seconds_ago": 3.5,
        "installs": 0, "download": None,
    }  # fmt: skip
    assert b["download"] == {"position": 3, "size": 10}
    assert b["seen_seconds_ago"] == 1.0


def test_a_fetch_of_entries_says_that_no_download_goes_on(followers: Followers) -> None:
    followers.took(followers.seen("a", "host"), 3, 10)
    assert followers.seen("a", "host", 50).position is None
