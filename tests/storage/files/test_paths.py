from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset
from storage.files.paths import (
    LOG,
    SEGMENT_KINDS,
    SegmentFile,
    aside_directory,
    copy_directory,
    cut_file,
    parse_segment_file,
    parse_snapshot_file,
    parse_topic_directory,
    segment_file,
    snapshot_file,
    topic_directory,
    unfinished_aside_directory,
)

OFFSETS = st.integers(0, (1 << 63) - 1)


@given(OFFSETS, OFFSETS, st.sampled_from(SEGMENT_KINDS), st.booleans())
def test_segment_file_names_are_understood_again(
    base: int, version: int, kind: str, cleaned: bool
) -> None:
    name = segment_file(base, version, kind, cleaned=cleaned)
    assert parse_segment_file(name) == SegmentFile(
        base_offset=Offset(base), version=version, kind=kind, is_cleaned=cleaned
    )


def test_names_on_disk_are_these() -> None:
    assert segment_file(7, 3, LOG) == "00000000000000000007.v3.log"
    assert segment_file(7, 3, LOG, cleaned=True) == "00000000000000000007.v3.log.cleaned"
    assert snapshot_file(12) == "00000000000000000012.snapshot"
    assert cut_file(5, 1) == "cut.5.1"
    assert topic_directory("orders", uuid.UUID(int=0)) == "orders.AAAAAAAAAAAAAAAAAAAAAA"


@given(OFFSETS)
def test_snapshot_names_are_understood_again(offset: int) -> None:
    assert parse_snapshot_file(snapshot_file(offset)) == offset


def test_directories_beside_a_log_are_no_partitions() -> None:
    log = "/data/orders.AAAAAAAAAAAAAAAAAAAAAA/12"
    paths = [
        copy_directory(log),
        unfinished_aside_directory(log),
        aside_directory(log, 345),
        aside_directory(log, 345, 1),
    ]
    names = ["12.resync", "12.aside.part", "12.aside.345", "12.aside.345.1"]
    assert paths == [log.replace("/12", f"/{name}") for name in names]
    assert not any(name.isdecimal() for name in names)


@given(st.uuids(), st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True))
def test_topic_directory_carries_the_id_and_fits_a_file_name(
    topic_id: uuid.UUID, topic: str
) -> None:
    name = topic_directory(topic, topic_id)
    assert parse_topic_directory(name) == topic_id
    assert len(name + ".deleted") <= 255


@pytest.mark.parametrize(
    "name",
    [
        "manifest",
        "manifest.tmp",
        "0.v1.log",
        "00000000000000000007.log",
        "00000000000000000007.v3.log.cleaned.cleaned",
        "00000000000000000007.v3.txt",
        "cut.5.1",
    ],
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert parse_segment_file(name) is None
