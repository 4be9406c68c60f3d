"""What has become of keys between two states of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from cli.consume.latest_records import LatestRecord
from cli.snapshot.difference import Change, Counts, differences

State = Mapping[tuple[int, bytes], tuple[bytes, tuple[tuple[str, bytes | None], ...]]]

PLACES = st.tuples(st.integers(0, 2), st.binary(max_size=2))
VALUES = st.tuples(st.binary(max_size=1), st.sampled_from([(), (("h", b"1"),), (("h", None),)]))
STATES = st.dictionaries(PLACES, VALUES, max_size=12)


def records(state: State, first_offset: int = 0) -> list[LatestRecord]:
    return [
        LatestRecord(partition, key, first_offset + at, 0, value, headers)
        for at, ((partition, key), (value, headers)) in enumerate(sorted(state.items()))
    ]


@given(before=STATES, after=STATES)
def test_each_key_that_differs_is_named_once_in_order(before: State, after: State) -> None:
    counts = Counts()
    found = list(differences(records(before), records(after, 1000), counts))

    places = [(each.partition, each.key) for each in found]
    assert places == sorted(
        place for place in {*before, *after} if before.get(place) != after.get(place)
    )
    for each, place in zip(found, places, strict=True):
        assert (each.before is not None, each.after is not None) == (
            place in before,
            place in after,
        )
        assert (each.change is Change.ADDED) == (place not in before)
        assert (each.change is Change.REMOVED) == (place not in after)
    changes = [each.change for each in found]
    assert (counts.added, counts.changed, counts.removed) == tuple(map(changes.count, Change))
    assert counts.same == len({*before, *after}) - len(found)


def test_a_record_that_was_written_again_is_no_difference() -> None:
    state = {(0, b"a"): (b"1", ())}

    assert not list(differences(records(state), records(state, 7), Counts()))
