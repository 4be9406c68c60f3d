"""Of records whose keys say the same, all but the last are outranked."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.export.equal_keys import KeyPlaces, outranked

KEYS = st.lists(st.sampled_from((b"", b"a", b"b", b"c", b"\0" * 300)), max_size=30)


@given(KEYS, st.integers(1, 7), st.randoms(use_true_random=False))
def test_they_are_those_that_a_later_record_follows(
    keys: list[bytes], size: int, order: object
) -> None:
    places = [(offset, key) for offset, key in enumerate(keys)]
    parts = [places[at : at + size] for at in range(0, len(places), size)]
    order.shuffle(parts)  # type: ignore[attr-defined]
    last = {key: offset for offset, key in places}

    found = outranked(part_of(each) for each in parts)

    assert found.tolist() == [offset for offset, key in places if last[key] != offset]


def part_of(places: list[tuple[int, bytes]]) -> KeyPlaces:
    part = KeyPlaces()
    half = len(places) // 2
    for block in (places[:half], places[half:]):
        part.add(
            pa.array([key for _, key in block], pa.binary()),
            pa.array([offset for offset, _ in block], pa.int64()),
        )
    assert part.count == len(places)
    return part
