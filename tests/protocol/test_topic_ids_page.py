"""docs/design/topic-ids.md lists every API that speaks topic ids, and in which versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from protocol.wire.api_keys import APIS, Api
from protocol.wire.schema import UUID, WireType, fields_of
from tests.harness.messages import served_versions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "topic-ids.md"
NAMES = ("topic_id", "topic_ids")


def speaks_ids(declared: type, version: int) -> bool:
    """Whether a message, or a structure in it, has the id of a topic in this version."""
    for field in fields_of(declared):
        if not field.wire.exists_in(version):
            continue
        kind: WireType[object] | None = field.wire.type
        while kind is not None and kind.element is not None:
            kind = kind.element
        assert kind is not None
        if kind is UUID and field.name in NAMES:
            return True
        if kind.struct is not None and speaks_ids(kind.struct, version):
            return True
    return False


def versions_with_ids(api: Api, declared: type) -> str:
    versions = [version for version in served_versions(api) if speaks_ids(declared, version)]
    if not versions:
        return "none"
    assert versions == list(range(versions[0], versions[-1] + 1))
    return f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else str(versions[0])


def rows() -> Iterator[str]:
    for api in APIS.values():
        asked = versions_with_ids(api, api.request_type)
        answered = versions_with_ids(api, api.response_type)
        if (asked, answered) != ("none", "none"):
            yield f"| {api.name} | {int(api.key)} | {asked} | {answered} |"


def test_the_page_lists_the_apis_that_speak_topic_ids_with_their_versions() -> None:
    page = PAGE.read_text("utf-8").splitlines()
    found = [line for line in page if line.startswith("| ") and line.count("|") == 5]
    assert found[1:] == list(rows())
