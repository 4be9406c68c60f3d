"""Asks the broker for the last values of keys (docs/design/get.md): one by GET, several in batches.

Keys are sent in base64url, which has no characters that a URL treats in its own way. A key that is
empty, or that would make the URL too long, is sent in a batch.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from cleaner.rules.text import duration_text
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.record_text import cell_text
from cli.compact.client import CallFailed, CompactionClient, Json, connected
from cli.get.output import Printing, print_answers

ROOT = "/v1/topics"
ENCODING = "base64url"
RAW = "raw"

KEYS_A_REQUEST = 1000
KEY_BYTES_A_REQUEST = 512 << 10
"""The broker reads bodies of up to 1 MiB."""
URL_KEY_BYTES_MAX = 4096
"""The broker reads URLs of up to 8,190 bytes."""
CALL_SECONDS_MAX = 600.0
"""The first get of a partition makes its table. Waiting takes longer by that."""

TOO_LARGE = "too_large"
MISSES = ("deleted", "not_found")
"""The codes of an answer about a key without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Which keys to look up, and how."""

    topic: str
    keys: Sequence[bytes]
    """At least one; each once."""
    partition: int | None = None
    """None: all of them."""
    min_offset: int | None = None
    """The offset of the partition that the answer has to include."""
    wait_seconds: int | None = None
    """The time to wait for `min_offset`, or without it for another value."""
    is_raw: bool = False
    """Whether values that name a schema stay as they are."""
    snapshot: str | None = None
    """The snapshot to read from; None for the topic as it is now."""

    @property
    def fits_url(self) -> bool:
        """Whether it is about one key, which a URL can hold."""
        return len(self.keys) == 1 and 0 < len(self.keys[0]) <= URL_KEY_BYTES_MAX

    def check(self) -> None:
        """Raise CommandFailed if the parts do not go together."""
        if self.min_offset is not None and self.partition is None:
            raise CommandFailed(EXIT_USAGE, "--min-offset is an offset of a --partition: name it")
        waits = self.min_offset is not None or self.wait_seconds is not None
        if waits and self.snapshot is not None:
            raise CommandFailed(
                EXIT_USAGE, "a snapshot never changes: leave out --min-offset and --wait"
            )
        if waits and not self.fits_url:
            raise CommandFailed(
                EXIT_USAGE,
                f"--min-offset and --wait take one key, of 1 to {URL_KEY_BYTES_MAX} bytes",
            )


async def get_values(url: str, lookup: Lookup, printing: Printing) -> int:
    """Print the last values of keys. Returns the exit code: 1 if a key has none.

    Raises:
        CommandFailed: the parts of the lookup do not go together, or the broker refuses it.
    """
    lookup.check()
    printing.check(len(lookup.keys))
    seconds_max = CALL_SECONDS_MAX + (lookup.wait_seconds or 0)
    async with connected(url, root=ROOT, seconds_max=seconds_max) as client:
        if lookup.fits_url:
            answers = [await _ask_one(client, lookup)]
        else:
            answers = [
                answer
                for keys in chunks(lookup.keys)
                for answer in await _ask_batch(client, lookup, keys)
            ]
    return print_answers(lookup.topic, lookup.keys, answers, printing)


def chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yields the keys in pieces that fit into a request."""
    begin = size = 0
    for at, key in enumerate(keys):
        is_full = at - begin == KEYS_A_REQUEST or size + len(key) > KEY_BYTES_A_REQUEST
        if is_full and at > begin:
            yield keys[begin:at]
            begin, size = at, 0
        size += len(key)
    yield keys[begin:]


async def _ask_one(client: CompactionClient, lookup: Lookup) -> Json:
    """Returns the answer about the only key, also if it has no value. Raises CommandFailed."""
    try:
        if lookup.wait_seconds is not None and lookup.min_offset is None:
            return await _ask_for_another(client, lookup, lookup.wait_seconds)
        return await client.call("GET", _key_path(lookup), _query(lookup, lookup.wait_seconds))
    except CallFailed as refused:
        if refused.code not in MISSES:
            raise
        return refused.answer


async def _ask_for_another(client: CompactionClient, lookup: Lookup, wait_seconds: int) -> Json:
    """Returns the answer about another value than the present one. Raises CommandFailed."""
    path = _key_path(lookup)
    present = await client.get_unless(path, _query(lookup))
    assert present is not None, "no ETag was sent"
    answer, etag = present
    name = f"{lookup.topic}: {cell_text(lookup.keys[0])}"
    if etag is None or answer.get("ambiguous"):
        raise CommandFailed(
            EXIT_FAILED, f"{name} has a value in several partitions: name one with --partition"
        )
    another = await client.get_unless(path, _query(lookup, wait_seconds), etag)
    if another is None:
        offset = answer.get("offset")
        state = "has no value" if offset is None else f"has the value of offset {offset}"
        raise CommandFailed(
            EXIT_FAILED, f"{name} still {state}, after {duration_text(wait_seconds)}"
        )
    return another[0]


async def _ask_batch(client: CompactionClient, lookup: Lookup, keys: Sequence[bytes]) -> list[Json]:
    """Returns the answers about keys in their order. Raises CommandFailed.

    If their values together are too large for an answer, it asks for each half.
    """
    body: Json = {"keys": [encoded(key) for key in keys], "key_encoding": ENCODING}
    if lookup.partition is not None:
        body["partition"] = lookup.partition
    if lookup.is_raw:
        body["value_format"] = RAW
    if lookup.snapshot is not None:
        body["snapshot"] = lookup.snapshot
    try:
        answer = await client.call(
            "POST", f"{_topic_path(lookup)}/keys:batch", body=json.dumps(body)
        )
    except CallFailed as refused:
        if refused.code != TOO_LARGE or len(keys) == 1:
            raise
        half = len(keys) // 2
        return [
            *await _ask_batch(client, lookup, keys[:half]),
            *await _ask_batch(client, lookup, keys[half:]),
        ]
    answers: list[Json] = answer["records"]
    return answers


def _topic_path(lookup: Lookup) -> str:
    return f"/{quote(lookup.topic, safe='')}"


def _key_path(lookup: Lookup) -> str:
    return f"{_topic_path(lookup)}/keys/{quote(encoded(lookup.keys[0]), safe='')}"


def _query(lookup: Lookup, wait_seconds: int | None = None) -> dict[str, str]:
    parameters = {
        "partition": lookup.partition,
        "min_offset": lookup.min_offset,
        "wait": wait_seconds,
        "snapshot": lookup.snapshot,
    }
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    return {"key_encoding": ENCODING, **given} | ({"value_format": RAW} if lookup.is_raw else {})


def encoded(key: bytes) -> str:
    """Returns a key as the broker reads it with `key_encoding=base64url`."""
    return base64.urlsafe_b64encode(key).decode()
