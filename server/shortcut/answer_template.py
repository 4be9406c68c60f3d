"""Answers that the ordinary encoder has made once, in which only a few numbers change.

frame's size: int32 | correlation id: int32 | ... | PARTITION | ...
"""

from __future__ import annotations

import struct
from typing import Generic, TypeVar, cast

from protocol.wire.error_codes import ErrorCode
from protocol.wire.request import RequestHeader
from protocol.wire.response import encode_response
from protocol.wire.schema import Message

TEMPLATES_MAX = 10_000
CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_AT = 4
PARTITION = struct.Struct(">ihqqq")
"""The numbers of a partition in answers to Produce and Fetch: its index, the error code, and three that
depend on the API."""
MARKS = (0x51525354, 0, 0x6162636465666768, -1, 0x7172737475767778)
"""The numbers in a template, by which the place of `PARTITION` is found."""

K = TypeVar("K")
T = TypeVar("T")


class AnswerTemplate:
    """One answer, with `MARKS` in it."""

    __slots__ = ("_answer", "_partition_at")

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._partition_at = answer.rindex(PARTITION.pack(*MARKS))

    def filled(
        self, correlation_id: int, index: int, first: int, second: int, third: int
    ) -> bytearray:
        """Returns the answer with these numbers, and without an error."""
        answer = bytearray(self._answer)
        CORRELATION_ID.pack_into(answer, CORRELATION_ID_AT, correlation_id)
        PARTITION.pack_into(answer, self._partition_at, index, ErrorCode.NONE, first, second, third)
        return answer


class Templates(Generic[K, T]):
    """The templates of existing topics only, because clients choose the names in their requests."""

    __slots__ = ("_templates",)

    def __init__(self) -> None:
        self._templates: dict[K, T] = {}

    def find(self, key: K) -> T | None:
        """Returns the template for this key, if there is one."""
        return self._templates.get(key)

    def set(self, key: K, template: T) -> T:
        """Store a template for this key, and return it."""
        if key not in self._templates and len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[key] = template
        return template

    def clear(self) -> None:
        """Forget all templates."""
        self._templates.clear()


def encoded_answer(answer: Message, api_version: int, correlation_id: int) -> bytes:
    """Returns the frame of an answer that has no regions of files, with the frame's size."""
    header = RequestHeader(
        api_key=answer.api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=None,
    )
    return b"".join(cast("list[bytes]", encode_response(header, answer)))
