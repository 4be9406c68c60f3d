"""The copy of the metadata refuses what would damage it, and says what to do."""

from __future__ import annotations

import errno

import pytest

from cli.standby.metadata_copy import MetadataCopy
from protocol.wire.errors import ProtocolError
from replog.batches import decode_batches, encode_batch
from replog.entry import Frame, Kind
from replog.messages import Diverging, Fetch, FetchSnapshot, SnapshotBytes, SnapshotOffered
from replog.trigger import RETRY_SECONDS
from storage.files.errors import StorageError
from tests.harness.faults import FOR_EVER
from tests.harness.followed_metadata import DIRECTORY, FollowedMetadata, MetadataLeader


def leader(count: int = 3, *, others_from: int = 99) -> MetadataLeader:
    """Returns a leader with some entries, other ones from a number on."""
    made = MetadataLeader()
    for number in range(count):
        value = "value" if number < others_from else "other"
        made.append([["put", f"/key/{number}", value, 0]])
    return made


def test_it_has_the_leaders_state_at_the_end_also_after_a_restart() -> None:
    world = FollowedMetadata(leader())

    world.catch_up()
    assert world.facts.digest == world.leader.digests[world.facts.end]
    world.restart()
    world.catch_up()

    assert world.facts.digest == world.leader.digests[world.facts.end]


@pytest.mark.parametrize(
    "command",
    [
        b'{"operations":[["swap","/key/1","/key/2"]]}',
        b'{"operations":[["put","/key/1","value",0,"and more"]]}',
        b'{"operations":[["delete",1]]}',
        b'{"operations":[["grant",1,9223372036854775808]]}',
        b"{}",
        b"\xff",
    ],
)
def test_a_command_that_this_release_does_not_know_is_not_written(command: bytes) -> None:
    world = FollowedMetadata(leader())

    def with_command(data: bytes) -> bytes:
        *before, last = decode_batches(data)
        changed = Frame(last.index, last.term, ((Kind.COMMAND, command),))
        return b"".join(map(encode_batch, (*before, changed)))

    with pytest.raises(ProtocolError, match=r"entry 3 is no command .* upgrade this standby"):
        world.step(payload=with_command)
    world.restart()
    world.catch_up()

    assert world.facts.digest == world.leader.digests[world.facts.end]


def test_a_damaged_snapshot_is_refused_and_fetched_again() -> None:
    made = leader()
    made.snapshot()
    world = FollowedMetadata(made)
    world.step()

    with pytest.raises(ProtocolError, match="the snapshot is damaged"):
        world.step(payload=lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    world.catch_up()

    assert world.facts.digest == made.digests[world.facts.end]


def test_a_leader_that_repeats_that_the_logs_differ_ends_it() -> None:
    world = FollowedMetadata(leader())
    world.catch_up()
    asked = world.copy.request()
    assert isinstance(asked, Fetch)

    with pytest.raises(StorageError, match="differs from this one before its end at 4"):
        world.copy.receive(Diverging(1, asked, asked.last_term, asked.end))


def test_a_snapshot_that_the_leader_no_longer_has_is_given_up() -> None:
    world = FollowedMetadata(leader())
    copy: MetadataCopy = world.copy
    gone = SnapshotOffered(1, world.leader.replica.snapshot, 0)
    later = SnapshotOffered(1, type(gone.snapshot)(99, 1), 0)

    copy.receive(later)
    copy.receive(SnapshotBytes(1, later.snapshot, 0, b"some", 100))
    assert copy.give_up_snapshot() == Fetch(1, 0)
    world.catch_up()

    assert world.facts.end == 4


# ---------------------------------------------------------------- whether the leader is the same


@pytest.mark.parametrize(
    "restored",
    [
        pytest.param(leader(5, others_from=2), id="other_entries_and_more"),
        pytest.param(leader(3, others_from=2), id="another_last_entry"),
        pytest.param(leader(2), id="not_the_last_entry"),
        pytest.param(leader(1), id="fewer_entries"),
    ],
)
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_leader_that_was_restored_within_its_term_is_refused(
    restored: MetadataLeader, *, is_restarted: bool
) -> None:
    world = FollowedMetadata(leader())
    world.catch_up()
    before = world.facts
    world.leader = restored
    if is_restarted:
        world.restart()
    world.copy.connected()

    with pytest.raises(StorageError, match="it was restored from an older backup"):
        world.step()

    world.leader = leader()
    world.restart()
    world.catch_up()
    assert (world.facts.end, world.facts.digest) == (before.end, before.digest)


def test_the_same_leader_is_followed_and_the_answer_has_the_next_entries_too() -> None:
    world = FollowedMetadata(leader(3))
    world.catch_up()
    world.leader = leader(5)
    world.copy.connected()

    world.step()

    assert world.facts.end == 6
    assert world.facts.digest == world.leader.digests[6]


def test_a_leader_that_no_longer_has_the_last_entry_is_followed() -> None:
    world = FollowedMetadata(leader(3))
    world.catch_up()
    world.leader = leader(5)
    world.leader.snapshot()
    world.copy.connected()

    world.catch_up()

    assert world.facts.installs == 1
    assert world.facts.digest == world.leader.digests[6]
    world.copy.connected()
    world.catch_up()


def test_while_a_snapshot_is_installed_nothing_is_compared() -> None:
    made = leader(5)
    made.snapshot()
    world = FollowedMetadata(leader(3))
    world.catch_up()
    world.leader = made
    world.step()
    wanted = world.copy.request()

    world.copy.connected()

    assert world.copy.request() == wanted
    world.catch_up()


# ---------------------------------------------------------------- downloads


def test_a_download_continues_after_a_restart() -> None:
    made = leader(30)
    made.snapshot()
    world = FollowedMetadata(made)
    for _ in range(3):
        world.step()
    wanted = world.copy.request()
    assert isinstance(wanted, FetchSnapshot)
    assert wanted.position > 0

    world.restart()

    assert world.copy.request() == wanted
    world.catch_up()
    assert world.facts.installs == 1
    assert world.facts.digest == made.digests[world.facts.end]


def test_a_download_that_the_leader_no_longer_has_begins_again_after_a_restart() -> None:
    made = leader(30)
    made.snapshot()
    world = FollowedMetadata(made)
    for _ in range(3):
        world.step()
    made.append([["put", "/key/new", "value", 0]])
    made.snapshot()

    world.restart()
    world.catch_up()

    assert world.facts.installs == 1
    assert world.facts.digest == made.digests[world.facts.end]
    assert not any(name.endswith(".part") for name in world.disk.list(DIRECTORY))


def test_after_a_snapshot_that_failed_the_next_one_is_tried_a_minute_later() -> None:
    made = MetadataLeader()
    world = FollowedMetadata(made)

    def follow_another() -> int:
        """Follow more entries than the log should hold. Returns how many disk operations failed."""
        before = world.disk.faults.raised
        for _ in range(40):
            made.append([["put", "/key", "x" * 20_000, 0]])
        world.catch_up()
        return world.disk.faults.raised - before

    world.disk.faults.fail("append to", errno.ENOSPC, path=".checkpoint", times=FOR_EVER)
    assert follow_another() == 1
    world.now_s += RETRY_SECONDS - 1
    assert follow_another() == 0
    world.now_s += 1
    assert follow_another() == 1
    world.disk.faults.heal()
    world.now_s += RETRY_SECONDS

    follow_another()

    assert world.facts.snapshot_end > 1
    assert world.facts.digest == made.digests[world.facts.end]
