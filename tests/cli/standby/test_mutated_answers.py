"""A leader's answers, damaged on their way or nonsense from the start: the copy refuses them with a
documented error, or has a state that the leader has had at that end.

    on the way        any bytes of the response; the batches keep their CRC, the snapshot its checksum
    from the start    the records in a batch, with a new CRC: only their form can be checked

`KOMPAKT_FUZZ_RUNS` makes a longer soak, `KOMPAKT_FUZZ_SEED` selects other inputs.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import suppress
from functools import cache, partial

import pytest

from cli.standby.requests import Refused
from protocol.wire.errors import ProtocolError
from replog.batches import decode_batches, encode_batch
from replog.entry import Frame, Kind
from storage.files.errors import StorageError
from tests.cli.standby.answer_changes import (
    ON_THE_WAY,
    Changes,
    intact,
    places_of_batches,
    resealed,
    sealed,
)
from tests.harness.followed_metadata import FollowedMetadata, MetadataLeader

RUNS = max(300, int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0")) // 10)
SEED = os.environ.get("KOMPAKT_FUZZ_SEED", "1")
STEPS = 12


def leader_with_entries() -> MetadataLeader:
    leader = MetadataLeader()
    for number in range(12):
        leader.append(*transactions(number))
        if number in (4, 8):
            leader.lead_again()
    return leader


def leader_with_a_snapshot() -> MetadataLeader:
    leader = leader_with_entries()
    leader.append([["grant", 7, 1000], ["put", "/leased", "x" * 400, 7]])
    leader.snapshot()
    leader.append(*transactions(99))
    return leader


def transactions(number: int) -> list[list[list[object]]]:
    return [
        [["put", f"/key/{number % 5}", f"{number}.{each}", 0], ["delete", f"/key/{each}"]]
        for each in range(1 + number % 3)
    ]


LEADERS = {each.__name__: cache(each) for each in (leader_with_entries, leader_with_a_snapshot)}


@pytest.mark.parametrize("leader", LEADERS)
def test_whatever_happens_to_answers_on_their_way_the_copy_never_has_another_state(
    leader: str,
) -> None:
    counts = Counter[str]()
    for number in range(RUNS):
        source = random.Random(f"{SEED}/{number}")
        world = FollowedMetadata(LEADERS[leader]())
        for _ in range(STEPS):
            counts[changed_step(source, world, ON_THE_WAY)] += 1
            assert_state_of_the_leader(world, number)
        world.restart()
        world.copy.connected()
        assert_state_of_the_leader(world, number)
        # The epoch of a batch is not protected, and the leader refuses a follower with another one.
        with suppress(StorageError):
            world.catch_up()
            counts["caught up"] += 1
        assert_state_of_the_leader(world, number)
    assert {"taken", "refused", "caught up"} <= set(counts), counts


@pytest.mark.parametrize("leader", LEADERS)
def test_nonsense_with_a_right_checksum_is_refused_or_can_be_read_again(leader: str) -> None:
    counts = Counter[str]()
    for number in range(RUNS):
        source = random.Random(f"{SEED}/{number}")
        world = FollowedMetadata(LEADERS[leader]())
        for _ in range(STEPS):
            counts[changed_step(source, world, FROM_THE_START)] += 1
        before = world.copy.facts()
        world.restart()
        with suppress(StorageError, ProtocolError):
            world.step(lambda _: b"")
        after = world.copy.facts()
        assert (after.end, after.digest) == (before.end, before.digest), number
    assert {"taken", "refused"} <= set(counts), counts


def retyped(source: random.Random, data: bytes) -> bytes:
    """Replace a word in the commands by another one of the same size."""
    words = (b'"put"', b'"pat"'), (b'"delete"', b'"revoke"'), (b",0]", b",x]"), (b'"/key', b"[[[[[")
    old, new = source.choice(words)
    places = [at for at in range(len(data)) if data.startswith(old, at)]
    if not places:
        return data
    at = source.choice(places)
    return sealed(data[:at] + new + data[at + len(new) :])


def of_other_kinds(source: random.Random, data: bytes) -> bytes:
    """Replace the entries of a frame by others, also of kinds that these leaders never write."""
    if not places_of_batches(data):
        return data
    frames = decode_batches(data)
    number = source.randrange(len(frames))
    payloads = (b"", b"{}", source.randbytes(source.randrange(60)), bytes(4), bytes(48))
    contents = tuple(
        (source.choice(tuple(Kind)), source.choice(payloads)) for _ in frames[number].contents
    )
    frames[number] = Frame(frames[number].index, frames[number].term, contents)
    return b"".join(map(encode_batch, frames))


FROM_THE_START: Changes = (
    ("payload", resealed),
    ("payload", retyped),
    ("payload", of_other_kinds),
    ("payload", intact),
)


def changed_step(source: random.Random, world: FollowedMetadata, changes: Changes) -> str:
    where, change = source.choice(changes)
    if changes is ON_THE_WAY and source.random() < 0.2:
        world.copy.connected()
    try:
        world.step(**{where: partial(change, source)})
    except (ProtocolError, Refused):
        return "refused"
    except StorageError:
        world.restart()
        return "ended"
    return "taken"


def assert_state_of_the_leader(world: FollowedMetadata, number: int) -> None:
    facts = world.copy.facts()
    assert world.leader.digests.get(facts.end) == facts.digest, (number, facts)
