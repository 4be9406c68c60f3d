"""The copy of the metadata refuses what would damage it, and says what to do."""

from __future__ import annotations

import pytest

from cli.standby.metadata_copy import MetadataCopy
from protocol.wire.errors import ProtocolError
from replog.batches import decode_batches, encode_batch
from replog.entry import Frame, Kind
from replog.messages import Diverging, Fetch, SnapshotBytes, SnapshotOffered
from storage.files.errors import StorageError
from tests.harness.followed_metadata import FollowedMetadata, MetadataLeader


def leader(count: int = 3) -> MetadataLeader:
    made = MetadataLeader()
    for number in range(count):
        made.append([["put", f"/key/{number}", "value", 0]])
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
