"""The description of a snapshot: what is read back, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.snapshots.descriptor import FORMAT, SnapshotDescriptor, decode, encode

PATH = "/data/snapshots/20261130T041500-7f3a/snapshot.json"
FIRST, SECOND, TOPIC = "A" * 22, "B" * 22, "t_-0" * 5 + "xx"


def partition(number: int = 0, directory: str = FIRST, start: int = 0) -> dict[str, Any]:
    return {
        "partition": number,
        "directory": directory,
        "start_offset": start,
        "end_offset": 7,
        "bytes": 700,
    }


def topic(name: str = "prices", topic_id: str = TOPIC, **fields: Any) -> dict[str, Any]:
    return {"name": name, "id": topic_id, "partitions": [partition()], **fields}


def directory(directory_id: str = FIRST, **fields: Any) -> dict[str, Any]:
    return {"id": directory_id, "path": "/data/a", "has_metadata": True, **fields}


def file(**fields: Any) -> bytes:
    content = {
        "format": FORMAT,
        "id": "20261130T041500-7f3a",
        "created_ms": 1_796_000_000_000,
        "at_ms": None,
        "cluster_id": "C" * 22,
        "node_id": 1,
        "directories": [directory(), directory(SECOND, path="/data/b", has_metadata=False)],
        "topics": [topic()],
        "cluster": {"/topics/prices": "{}"},
        "node": {},
    }
    return msgspec.json.encode(content | fields)


def test_what_is_written_is_read_back() -> None:
    found = decode(file(), PATH)

    assert isinstance(found, SnapshotDescriptor)
    assert decode(encode(found), PATH) == found
    assert encode(found) == file()
    assert found.metadata_directory().path == "/data/a"


def test_a_field_of_a_later_release_is_skipped() -> None:
    assert decode(file(compressed=True), PATH) == decode(file(), PATH)


def test_a_later_format_is_refused_as_such_whatever_else_it_has() -> None:
    with pytest.raises(FormatFromTheFuture):
        decode(msgspec.json.encode({"format": FORMAT + 1, "topics": "elsewhere"}), PATH)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(file()[:-1], "truncated", id="cut_short"),
        pytest.param(file().replace(b"/topics/", b"/\xff\xfe/"), "UTF-8", id="not_text"),
        pytest.param(b"{}", "format", id="without_format"),
        pytest.param(b"[" * 100_000, "array", id="deep"),
        pytest.param(file(id="../x"), "id", id="id_is_a_path"),
        pytest.param(file(topics=[topic(name="..")]), "name", id="name_is_a_path"),
        pytest.param(file(topics=[topic(name="a/b")]), "name", id="name_has_a_slash"),
        pytest.param(file(topics=[topic(topic_id="x")]), "id", id="short_topic_id"),
        pytest.param(file(topics=[topic(), topic()]), "a topic twice", id="topic_twice"),
        pytest.param(
            file(topics=[topic(partitions=[partition(), partition()])]),
            "partition of prices twice",
            id="partition_twice",
        ),
        pytest.param(
            file(topics=[topic(partitions=[partition(directory="D" * 22)])]),
            "does not list",
            id="unknown_directory",
        ),
        pytest.param(
            file(topics=[topic(partitions=[partition(start=8)])]),
            "ends before",
            id="negative_range",
        ),
        pytest.param(file(directories=[directory(path="a")]), "path", id="relative_path"),
        pytest.param(file(directories=[directory(), directory()]), "same id", id="directory_twice"),
        pytest.param(
            file(directories=[directory(has_metadata=False)]), "not exactly one", id="no_metadata"
        ),
    ],
)
def test_anything_else_is_damaged(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedFile, match=reason):
        decode(data, PATH)
