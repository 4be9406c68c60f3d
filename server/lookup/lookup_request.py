"""What a request for the last values of keys asks for. Pure."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from server.admin.compaction_answers import parse_number
from server.admin.refusals import CompactionRefused

BAD_REQUEST = "bad_request"
UTF_8, BASE64URL = "utf-8", "base64url"
KEYS_MAX = 1_000
WAIT_SECONDS_MAX = 60.0
STABLE_SECONDS = 5.0
"""How long a request waits for `min_offset` if it does not say."""

PARAMETERS = frozenset(
    {"key_encoding", "min_offset", "partition", "snapshot", "value_format", "wait"}
)
AUTO, RAW = "auto", "raw"
TO_BASE64 = bytes.maketrans(b"-_", b"+/")
PADDING = (b"", b"===", b"==", b"=")
"""By the length without it, modulo 4; nothing has a length of 1."""
SECONDS = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The parameters of a GET."""

    partition: int | None = None
    """The one that is searched; None: all."""
    min_offset: int | None = None
    wait_seconds: float | None = None
    is_raw: bool = False
    """Whether values that name a schema stay as they are."""
    snapshot: str | None = None
    """The id of the snapshot that is read; None: the topic as it is now."""


class KeysBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a batch."""

    keys: list[str]
    key_encoding: str = UTF_8
    partition: int | None = None
    value_format: str = AUTO
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a batch asks for."""

    keys: Sequence[bytes]
    partition: int | None
    is_raw: bool
    snapshot: str | None


def query_of(parameters: Mapping[str, str]) -> Query:
    """Returns the parameters of a GET, but that of the key. Raises CompactionRefused."""
    for name in parameters:
        if name not in PARAMETERS:
            known = ", ".join(sorted(PARAMETERS))
            raise bad(f"there is no parameter {name!r}: there are {known}")
    partition = _number(parameters, "partition")
    min_offset = _number(parameters, "min_offset")
    if min_offset is not None and partition is None:
        raise bad("min_offset is an offset of one partition: name it with partition=N")
    snapshot = parameters.get("snapshot")
    if snapshot is not None and ({"wait", "min_offset"} & parameters.keys()):
        raise bad("a snapshot never changes: leave out wait and min_offset")
    return Query(
        partition=partition,
        min_offset=min_offset,
        wait_seconds=_wait(parameters),
        is_raw=is_raw(parameters.get("value_format", AUTO)),
        snapshot=snapshot,
    )


def is_raw(value_format: str) -> bool:
    """Returns whether values that name a schema are to stay as they are. Raises CompactionRefused."""
    if value_format not in {AUTO, RAW}:
        raise bad(f"value_format is {AUTO} or {RAW}, not {value_format!r}")
    return value_format == RAW


def key_of(text: str, encoding: str) -> bytes:
    """Returns the key that a text stands for. Raises CompactionRefused."""
    if encoding == UTF_8:
        return text.encode()
    if encoding != BASE64URL:
        raise bad(f"key_encoding is {UTF_8} or {BASE64URL}, not {encoding!r}")
    try:
        return _decoded(text)
    except ValueError as error:
        raise bad(f"the key {text!r} is not {BASE64URL}") from error


def _decoded(text: str) -> bytes:
    """Returns the bytes of base64url, with or without padding. Raises ValueError.

    In half the time of `urlsafe_b64decode`, and characters that base64 does not have are refused.
    """
    data = text.encode("ascii").rstrip(b"=")
    return a2b_base64(data.translate(TO_BASE64) + PADDING[len(data) & 3], strict_mode=True)


def batch_of(body: bytes) -> Batch:
    """Returns what a batch asks for. Raises CompactionRefused."""
    try:
        asked = msgspec.json.decode(body, type=KeysBody)
    except (msgspec.MsgspecError, ValueError) as error:
        raise bad(f"the body is no such batch: {error}") from error
    if not 1 <= len(asked.keys) <= KEYS_MAX:
        raise bad(f"a batch has 1 to {KEYS_MAX} keys, not {len(asked.keys)}")
    if asked.partition is not None and asked.partition < 0:
        raise bad(f"{asked.partition} is not the number of a partition")
    return Batch(
        keys=[key_of(each, asked.key_encoding) for each in asked.keys],
        partition=asked.partition,
        is_raw=is_raw(asked.value_format),
        snapshot=asked.snapshot,
    )


def bad(sentence: str) -> CompactionRefused:
    """Returns the refusal of a request that cannot be understood."""
    return CompactionRefused(400, sentence, code=BAD_REQUEST)


def etags_of(header: str | None) -> frozenset[str]:
    """Returns the entity tags of an If-None-Match header; weak ones count like others."""
    if header is None:
        return frozenset()
    found = re.findall(r'(?:W/)?("[^"]*")|(\*)', header)
    return frozenset(quoted or star for quoted, star in found)


def _wait(parameters: Mapping[str, str]) -> float | None:
    text = parameters.get("wait")
    if text is None:
        return None
    match = SECONDS.fullmatch(text)
    if match is None or float(match[1]) > WAIT_SECONDS_MAX:
        raise bad(f"wait is a number of seconds up to {WAIT_SECONDS_MAX:g}, not {text!r}")
    return float(match[1])


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    number = parse_number(text)
    if number is None:
        raise bad(f"{name} is a number, not {text!r}")
    return number
