"""Compiled codecs are kept: each is compiled when it is first looked up, and never again."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.wire.codec_source import CodecCache, CodecSource
from protocol.wire.schema import INT8, INT16, Message, wire, wire_class


@wire_class
class Pair(Message):
    api_key = 0
    versions = (0, 1)
    flexible_since = 1

    first: int = wire(INT8)
    second: int = wire(INT16)


class NamesSource(CodecSource):
    """Writes a function that returns the names of a message's fields."""

    written = 0

    def __init__(self, message_type: type[Message], version: int) -> None:
        super().__init__(message_type, version, {})
        type(self).written += 1
        names = [field.name for field in self._fields(message_type).plain]
        self.text = f"def names():\n    return {names!r}, {version}\n"

    def _flush(self) -> None: ...


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> CodecCache[Any]:
    monkeypatch.setattr(NamesSource, "written", 0)
    return CodecCache[Any](NamesSource, "names")


def test_a_function_is_compiled_when_it_is_first_looked_up(cache: CodecCache[Any]) -> None:
    assert NamesSource.written == 0
    first = cache[Pair, 0]
    assert first() == (["first", "second"], 0)
    assert cache[Pair, 0] is first
    assert NamesSource.written == 1


def test_each_version_has_its_own_function(cache: CodecCache[Any]) -> None:
    assert [cache[Pair, version]()[1] for version in (0, 1)] == [0, 1]
    assert len(cache) == NamesSource.written == 2


def test_a_version_that_does_not_exist_is_not_kept(cache: CodecCache[Any]) -> None:
    with pytest.raises(AssertionError, match="Pair has no version 2"):
        cache[Pair, 2]
    assert not cache
