"""Keys have the same identity exactly if they are equal."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.export.columns.key_identity import identity_of

KIND = pa.struct(
    [
        ("n", pa.int64()),
        ("t", pa.string()),
        ("l", pa.list_(pa.struct([("f", pa.float64())]))),
    ]
)
NUMBERS = st.none() | st.sampled_from([0, 1, 127, 128, -1])
TEXTS = st.none() | st.sampled_from(["", "a", "b"])
LISTS = st.none() | st.lists(
    st.none() | st.fixed_dictionaries({"f": st.none() | st.sampled_from([0.5, 1.0])}), max_size=2
)


@given(st.lists(st.fixed_dictionaries({"n": NUMBERS, "t": TEXTS, "l": LISTS}), max_size=6))
def test_keys_are_equal_exactly_if_their_identities_are(keys: list[dict[str, Any]]) -> None:
    found = identity_of(pa.array(keys, KIND)).to_pylist()
    assert [[one == other for other in keys] for one in keys] == [
        [one == other for other in found] for one in found
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_both_zeros_are_one_key_and_each_nan_is_the_same(kind: pa.DataType) -> None:
    other_nan = pa.array([0xFFF8_0000_0000_0001], pa.uint64()).view(pa.float64())[0].as_py()
    keys = pa.array([0.0, -0.0, math.nan, other_nan, 1.0], kind)
    zero, negative, nan, other, one = identity_of(keys).to_pylist()
    assert (zero, nan) == (negative, other)
    assert len({zero, nan, one}) == 3


def test_times_beyond_pythons_years_and_decimals_are_keys() -> None:
    far = pa.array([2**62, 2**62 + 1, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    first, second, null = identity_of(far).to_pylist()
    assert first != second
    assert null is None
    one, same = identity_of(pa.array([Decimal("1.5"), Decimal("1.50")], pa.decimal128(5, 2)))
    assert one == same


def test_no_keys_have_no_identities() -> None:
    assert len(identity_of(pa.array([], KIND))) == 0
