"""What a leader knows of its followers, and how it bounds them."""

from __future__ import annotations

import pytest

from replog.entry import SnapshotId
from server.metadata.followers import FOLLOWERS_MAX, PIN_SECONDS, Followers

OLD, NEW = SnapshotId(10, 1), SnapshotId(20, 1)


class World:
    """Followers under a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.followers = Followers(snapshots_max=2, bytes_per_second=1000, clock=lambda: self.now_s)


@pytest.fixture
def world() -> World:
    return World()


def test_a_further_download_is_not_admitted_until_one_is_complete(world: World) -> None:
    followers = world.followers
    first = followers.seen("a", "host")
    assert followers.admit("a", OLD)
    assert followers.admit("b", OLD)
    assert not followers.admit("c", OLD)
    assert followers.admit("a", OLD), "who has a download continues it"

    followers.took(first, 50, 100)
    assert (first.position, first.size, first.installs) == (50, 100, 0)
    assert not followers.admit("c", OLD)
    followers.took(first, 100, 100)

    assert (first.position, first.installs) == (None, 1)
    assert followers.admit("c", OLD)


def test_a_snapshot_is_pinned_while_its_next_piece_comes_within_a_minute(world: World) -> None:
    followers = world.followers
    followers.admit("a", OLD)
    world.now_s += PIN_SECONDS - 1
    followers.admit("a", OLD)
    followers.admit("b", NEW)
    world.now_s += PIN_SECONDS - 1
    assert set(followers.pinned()) == {OLD, NEW}
    world.now_s += 1
    assert not followers.pinned()
    assert followers.downloading_count == 0


def test_a_follower_that_takes_another_snapshot_lets_the_first_one_go(world: World) -> None:
    world.followers.admit("a", OLD)
    world.followers.admit("a", NEW)
    assert set(world.followers.pinned()) == {NEW}


def test_a_follower_that_vanished_does_not_keep_others_waiting(world: World) -> None:
    followers = world.followers
    followers.admit("a", OLD)
    followers.admit("b", OLD)
    world.now_s += PIN_SECONDS
    assert followers.admit("c", OLD)


def test_followers_pause_for_the_bytes_that_they_have_taken_together(world: World) -> None:
    followers = world.followers
    assert followers.charge(1000) == 0, "a second's bytes at once"
    assert followers.charge(500) == pytest.approx(0.5)
    world.now_s += 10
    assert followers.charge(1000) == 0, "what was not used is not saved up"
    assert followers.charge(3000) == pytest.approx(3)


def test_the_follower_seen_longest_ago_is_forgotten_for_a_new_one(world: World) -> None:
    followers = world.followers
    for number in range(FOLLOWERS_MAX):
        followers.seen(f"f{number}", "host")
    followers.seen("f0", "host")
    followers.seen("new", "host")

    known = [each.id for each in followers.all()]
    assert len(known) == FOLLOWERS_MAX
    assert known[-2:] == ["f0", "new"]
    assert "f1" not in known


def test_programs_get_each_follower_with_its_lag_and_its_download(world: World) -> None:
    followers = world.followers
    followers.seen("a", "10.0.0.1", 7)
    world.now_s += 5
    followers.took(followers.seen("b", "10.0.0.2"), 10, 40)
    world.now_s += 1

    followers.fetched("a", "10.0.0.1", "__consumer_offsets", 3, 90)
    followers.fetched("a", "10.0.0.1", "__consumer_offsets", 4, 100)
    followers.fetched("a", "10.0.0.1", "__consumer_offsets", 3, 95)
    followers.took_checkpoint("a", "10.0.0.1", "__consumer_offsets", is_last=False)
    followers.took_checkpoint("a", "10.0.0.1", "__consumer_offsets", is_last=True)
    world.now_s += 2
    newest, oldest = followers.as_json(12, lambda topic, partition: 100)

    assert newest["download"] == {"position": 10, "size": 40}
    assert oldest == {
        "id": "a",
        "host": "10.0.0.1",
        "end": 7,
        "lag": 5,
        "seen_seconds_ago": 8.0,
        "installs": 0,
        "download": None,
        "coordinators": [
            {
                "name": "__consumer_offsets",
                "partitions": 2,
                "lag": 5,
                "seen_seconds_ago": 2.0,
                "checkpoints": 1,
            }
        ],
    }
    assert newest["coordinators"] == []
