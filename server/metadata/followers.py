"""What a leader knows about the followers of its logs, and what it allows them.

A follower shows up with its first request and is forgotten when `FOLLOWERS_MAX` others were seen since.
Nothing of it is needed to answer: a leader that has restarted learns all of it again.

    snapshots_max       followers that download a snapshot at the same time; others come again later
    bytes_per_second    all of them together; a follower that took more pauses for as long

The snapshot that a follower downloads is pinned, so that it is not removed for a newer one, for as long
as the next piece is asked for within `PIN_SECONDS`.

Source: KIP-630; Ongaro, Log Compaction in Raft, section 3 (slow followers).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field

from replog.entry import SnapshotId
from storage.threads import any_thread, loop_thread

FOLLOWERS_MAX = 100
"""The most followers that are remembered."""
PIN_SECONDS = 60.0
AWAY_SECONDS = 60.0
"""A follower that was not seen for longer is away; one that follows asks at least every few seconds."""
LAG_ENTRIES_MAX, LAG_OFFSETS_MAX = 1_000, 10_000
"""A follower is behind if it lacks more entries of the metadata's log, or offsets of a coordinator's
topic: the leader appends while it answers."""
RETRY_SECONDS = 1.0
"""When a follower that was not admitted may ask again; it decides how much longer it waits."""


@dataclass(slots=True, kw_only=True)
class CopiedTopic:
    """A follower's copies of one coordinator's topic, as of its last request about it."""

    seen_s: float
    ends: dict[int, int] = field(default_factory=dict)
    """Where the copies end, by partition."""
    checkpoints: int = 0
    """Checkpoints of which it took the last byte: to install them, or to verify its copy."""


@dataclass(slots=True, kw_only=True)
class FollowerFacts:
    """One follower, as of its last request."""

    id: str
    """The id of its directory, or `node` and its node id; `unnamed` for one that sends neither."""
    host: str
    end: int
    """Where its log ends; 0 until it has said so."""
    seen_s: float
    """When its last request came, on the monotonic clock."""
    installs: int = 0
    """Snapshots of which it took the last byte, since the leader's start or since it was forgotten."""
    position: int | None = None
    """The bytes that it has of the snapshot that it downloads; None while it downloads none."""
    size: int = 0
    """The size of that snapshot."""
    copies: dict[str, CopiedTopic] = field(default_factory=dict)
    """Its copies of the coordinators' topics."""


EndOf = Callable[[str, int], int]
"""Returns where the log of a topic's partition ends; 0 if it does not exist any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """How far a follower's copies of one coordinator's topic are."""

    name: str
    partitions: int
    lag: int
    """The offsets that they lack."""
    seen_seconds_ago: float
    """Since the last request about the topic."""
    checkpoints: int


def copies_of(facts: FollowerFacts, end_of: EndOf, now_s: float) -> list[CopyFacts]:
    """Returns how far a follower's copies of each coordinator's topic are."""
    # Copied first: the loop adds entries while another thread reads them.
    return [
        CopyFacts(
            name=name,
            partitions=len(each.ends),
            lag=sum(max(0, end_of(name, number) - end) for number, end in each.ends.copy().items()),
            seen_seconds_ago=max(0.0, now_s - each.seen_s),
            checkpoints=each.checkpoints,
        )
        for name, each in sorted(facts.copies.copy().items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Download:
    """A snapshot that a follower downloads."""

    snapshot: SnapshotId | None
    """None for a coordinator's checkpoint, which the open file keeps."""
    until_s: float
    """When it ends, unless the next piece is asked for before."""


@loop_thread
class Followers:
    """The followers of one log."""

    __slots__ = ("_bytes_per_second", "_clock", "_downloads", "_known", "_paid_s", "_snapshots_max")

    def __init__(
        self, *, snapshots_max: int, bytes_per_second: int, clock: Callable[[], float]
    ) -> None:
        """Know no follower yet.

        Args:
            clock: returns seconds that never go back.
        """
        # Constant after construction
        self._snapshots_max = snapshots_max
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        # State: the least recently seen follower first. `_downloads` is replaced, not changed, because
        # other threads read it.
        self._known: dict[str, FollowerFacts] = {}
        self._downloads: dict[str, _Download] = {}
        self._paid_s = 0.0
        # When the bytes that were sent are paid for.

    @any_thread
    def all(self) -> list[FollowerFacts]:
        """Returns the followers, the least recently seen first."""
        return list(self._known.values())

    def as_json(self, end: int, end_of: EndOf) -> list[dict[str, object]]:
        """Returns the followers for programs, the last one seen first.

        Args:
            end: where the metadata's log ends.
            end_of: returns where a coordinator's partition ends.
        """
        now_s = self._clock()
        return [
            {
                "id": each.id,
                "host": each.host,
                "end": each.end,
                "lag": max(0, end - each.end),
                "seen_seconds_ago": round(now_s - each.seen_s, 3),
                "installs": each.installs,
                "download": None
                if each.position is None
                else {"position": each.position, "size": each.size},
                "coordinators": [
                    asdict(copy) | {"seen_seconds_ago": round(copy.seen_seconds_ago, 3)}
                    for copy in copies_of(each, end_of, now_s)
                ],
            }
            for each in reversed(self._known.values())
        ]

    def seen(self, follower: str, host: str, end: int | None = None) -> FollowerFacts:
        """Note a request of a follower.

        Args:
            end: where its log ends, if it said so.
        """
        facts = self._known.pop(follower, None)
        if facts is None:
            facts = FollowerFacts(id=follower, host=host, end=0, seen_s=0.0)
        facts.host, facts.seen_s = host, self._clock()
        if end is not None:
            facts.end, facts.position = end, None
        self._known[follower] = facts
        if len(self._known) > FOLLOWERS_MAX:
            del self._known[next(iter(self._known))]
        return facts

    def fetched(self, follower: str, host: str, topic: str, partition: int, end: int) -> None:
        """Note that a follower asks for a coordinator's existing partition, from its copy's end on."""
        self._copied(follower, host, topic).ends[partition] = end

    def took_checkpoint(self, follower: str, host: str, topic: str, *, is_last: bool) -> None:
        """Note bytes of a coordinator's checkpoint.

        Args:
            is_last: whether the last byte was among them.
        """
        self._copied(follower, host, topic).checkpoints += is_last

    def _copied(self, follower: str, host: str, topic: str) -> CopiedTopic:
        facts, now_s = self._known.get(follower) or self.seen(follower, host), self._clock()
        copied = facts.copies.setdefault(topic, CopiedTopic(seen_s=now_s))
        copied.seen_s = now_s
        return copied

    def admit(self, follower: str, snapshot: SnapshotId | None = None) -> bool:
        """Let a follower read the next piece of a snapshot, which is pinned from now on.

        Without a snapshot it reads a coordinator's checkpoint; `follower` then names the partition too.

        Returns False if too many others are downloading.
        """
        downloads = self._running()
        if follower not in downloads and len(downloads) >= self._snapshots_max:
            return False
        until_s = self._clock() + PIN_SECONDS
        downloads[follower] = _Download(snapshot=snapshot, until_s=until_s)
        self._downloads = downloads
        return True

    def took(self, facts: FollowerFacts, position: int, size: int) -> None:
        """Note that a follower has the bytes of its snapshot up to `position`."""
        facts.position, facts.size = position, size
        if position >= size:
            facts.installs += 1
            facts.position = None
            self.end_download(facts.id)

    def end_download(self, follower: str) -> None:
        """Let others download: the follower has its snapshot, or that is gone."""
        downloads = self._running()
        downloads.pop(follower, None)
        self._downloads = downloads

    def charge(self, size: int) -> float:
        """Count bytes that are sent to a follower. Returns for how many seconds it must pause."""
        now_s = self._clock()
        self._paid_s = max(self._paid_s, now_s) + size / self._bytes_per_second
        # What is paid within a second is no reason to pause.
        return max(0.0, self._paid_s - now_s - 1.0)

    @property
    def downloading_count(self) -> int:
        """How many followers download a snapshot."""
        return len(self._running())

    @any_thread
    def pinned(self) -> Collection[SnapshotId]:
        """Returns the snapshots that followers download."""
        return {each.snapshot for each in self._running().values() if each.snapshot is not None}

    @any_thread
    def _running(self) -> dict[str, _Download]:
        """Returns a copy of the downloads that have not ended."""
        now_s = self._clock()
        return {name: each for name, each in self._downloads.items() if each.until_s > now_s}
