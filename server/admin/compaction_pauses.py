"""The pauses of cleaning that operators have set; they survive a restart.

    /paused/everything               {"since_ms": n}     all cleaning
    /paused/<topic id>               {"since_ms": n}     all partitions of a topic
    /paused/<topic id>/<partition>   {"since_ms": n}     one partition

The keys hold topic ids, so that a topic that is deleted and created again is not paused. The pauses of
deleted topics are removed at the next start.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Container, Mapping

from cleaner.pacing.paused import Paused
from server.metadata.store import Delete, MetadataStore, Put, write_unless_disk_full
from server.topics.names import parse_id
from storage.files.paths import topic_id_text
from storage.threads import loop_thread

PREFIX = "/paused/"
EVERYTHING = "everything"


@loop_thread
class CompactionPauses:
    """Sets and ends the pauses of this broker."""

    __slots__ = ("_clock_ms", "_lock", "_on_change", "_since_ms", "_store")

    def __init__(self, store: MetadataStore, *, clock_ms: Callable[[], int]) -> None:
        # Constant after construction
        self._store = store
        self._clock_ms = clock_ms
        self._lock = asyncio.Lock()
        # State: the start of each pause in wall time, by its key without the prefix.
        self._since_ms: dict[str, int] = {}
        self._on_change: Callable[[Paused], None] = lambda _: None

    async def open(self, topic_ids: Container[uuid.UUID]) -> None:
        """Read the pauses, and delete those of topics that no longer exist.

        Args:
            topic_ids: the ids of the topics that exist.

        Raises:
            StorageError: the store cannot be read.
        """
        entries = (await self._store.range(PREFIX)).entries
        gone = [entry for entry in entries if not _names_one_of(entry.key, topic_ids)]
        if gone:
            await write_unless_disk_full(self._store, [Delete(key=entry.key) for entry in gone])
        self._since_ms = {
            entry.key.removeprefix(PREFIX): json.loads(entry.value)["since_ms"]
            for entry in entries
            if entry not in gone
        }

    def when_changed(self, on_change: Callable[[Paused], None]) -> None:
        """Call `on_change` with the pauses now, and after every change."""
        self._on_change = on_change
        on_change(self.paused)

    @property
    def paused(self) -> Paused:
        """All pauses that hold now."""
        return _paused_of(self._since_ms)

    def since_ms(self, topic_id: uuid.UUID | None, partition: int | None) -> int | None:
        """Returns since when exactly this scope has been paused, in wall time; None if it is not.

        A wider pause does not count.
        """
        return self._since_ms.get(_name(topic_id, partition))

    async def pause(self, topic_id: uuid.UUID | None = None, partition: int | None = None) -> None:
        """Pause everything, a topic, or one partition; durable and in effect when this returns.

        Raises:
            StorageError: it cannot be made durable; nothing has changed.
        """
        name = _name(topic_id, partition)
        async with self._lock:
            if name in self._since_ms:
                return
            now_ms = self._clock_ms()
            value = json.dumps({"since_ms": now_ms})
            await self._store.txn((), [Put(key=PREFIX + name, value=value)])
            self._since_ms[name] = now_ms
            self._on_change(self.paused)

    async def resume(self, topic_id: uuid.UUID | None = None, partition: int | None = None) -> None:
        """End a pause and the narrower ones that it covers; durable and in effect when this returns.

        Raises:
            StorageError: it cannot be made durable; nothing has changed.
        """
        name = _name(topic_id, partition)
        async with self._lock:
            ended = [each for each in self._since_ms if _is_within(each, name)]
            if not ended:
                return
            await self._store.txn((), [Delete(key=PREFIX + each) for each in ended])
            for each in ended:
                del self._since_ms[each]
            self._on_change(self.paused)


def _name(topic_id: uuid.UUID | None, partition: int | None) -> str:
    """Returns the key of a pause, without the prefix."""
    if topic_id is None:
        return EVERYTHING
    text = topic_id_text(topic_id)
    return text if partition is None else f"{text}/{partition}"


def _is_within(name: str, wider: str) -> bool:
    return wider in (EVERYTHING, name) or name.startswith(wider + "/")


def _names_one_of(key: str, topic_ids: Container[uuid.UUID]) -> bool:
    topic_text = key.removeprefix(PREFIX).partition("/")[0]
    return topic_text == EVERYTHING or parse_id(topic_text) in topic_ids


def _paused_of(since_ms: Mapping[str, int]) -> Paused:
    named = [name.partition("/") for name in since_ms if name != EVERYTHING]
    return Paused(
        everything=EVERYTHING in since_ms,
        topics=frozenset(parse_id(topic) for topic, _, number in named if not number),
        partitions=frozenset(
            (parse_id(topic), int(number)) for topic, _, number in named if number
        ),
    )
