"""The header before a value that names its schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.outcomes import BadValue
from schemas.wire_header import NESTED_MAX, message_path, schema_id_of
from tests.harness.fake_registry import with_header, zigzag


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\1\0\0\0\7x", b"\0\xff\0\0\7x", b"{}   text"])
def test_a_value_without_the_header_names_no_schema(data: bytes) -> None:
    assert schema_id_of(data) is None


@given(schema_id=st.integers(0, 2**31 - 1), data=st.binary(max_size=9))
def test_a_header_names_its_schema(schema_id: int, data: bytes) -> None:
    assert schema_id_of(with_header(schema_id, data)) == schema_id


@given(path=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=NESTED_MAX))
def test_the_path_of_a_message_is_read_back(path: list[int]) -> None:
    data = with_header(7, zigzag(len(path)) + b"".join(map(zigzag, path)))
    assert message_path(data + b"rest") == (tuple(path), len(data))


def test_a_single_zero_is_the_first_message() -> None:
    assert message_path(with_header(7, b"\0rest")) == ((0,), 6)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends before"),
        (b"\x80", "ends before"),
        (b"\xff\xff\xff\xff\xff\xff", "ends before"),
        (zigzag(2) + zigzag(0), "ends before"),
        (zigzag(-1), "nested -1 deep"),
        (zigzag(NESTED_MAX + 1), "nested 33 deep"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        message_path(with_header(7, data))
