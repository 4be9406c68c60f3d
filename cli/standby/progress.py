"""What a standby is doing: its state and its progress. Printed when it changes, and shown over HTTP.

connecting     to the leader
installing     it downloads a snapshot, because the leader no longer has the entries after its own
catching-up    it has fewer entries than the leader
current        it has all entries that the leader had at its last answer
waiting        until it tries again; the reason says what is wrong
promoting      it takes over: from here on there is no way back
promoted       it serves clients as a broker
stopped
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from cleaner.rules.text import count_text, duration_text, size_text
from cli.base.text import time_text
from cli.standby.coordinator_copies import TopicFacts
from cli.standby.metadata_copy import CopyFacts
from cli.standby.mirrors import MirrorsFacts
from server.metadata.followers import LAG_ENTRIES_MAX, LAG_OFFSETS_MAX

LINE_SECONDS = 1.0
"""The time between two lines about a download."""


class State(enum.StrEnum):
    """What a standby is doing."""

    CONNECTING = "connecting"
    INSTALLING = "installing"
    CATCHING_UP = "catching-up"
    CURRENT = "current"
    WAITING = "waiting"
    PROMOTING = "promoting"
    PROMOTED = "promoted"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class Download:
    """A snapshot that is being downloaded."""

    end: int
    size: int
    position: int
    began_at: int
    """The position at which this process began or continued."""
    began_s: float

    def bytes_per_second(self, now_s: float) -> float:
        """Returns the rate since it began or continued."""
        elapsed_s = now_s - self.began_s
        return (self.position - self.began_at) / elapsed_s if elapsed_s > 0 else 0.0

    def seconds_left(self, now_s: float) -> float | None:
        """Returns the time for the rest; None if it is not known yet."""
        rate = self.bytes_per_second(now_s)
        return (self.size - self.position) / rate if rate else None


class Progress:
    """The state of one standby; lives on the loop."""

    __slots__ = (
        "_clock", "_is_json", "_line_s", "_now_ms", "_say", "cluster_id", "coordinators",
        "coordinators_reason", "directory", "download",
        "facts", "follower_id", "leader", "leader_end", "leader_node_id", "leader_term", "mirrors",
        "reason", "seen_s", "state",
    )  # fmt: skip

    def __init__(
        self,
        facts: CopyFacts,
        *,
        leader: str,
        directory: str,
        follower_id: str,
        is_json: bool,
        say: Callable[[str], None],
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            say: prints a line.
            clock: returns seconds that never go back.
        """
        # Constant after construction
        self.leader = leader
        self.directory = directory
        self.follower_id = follower_id
        self._is_json = is_json
        self._say = say
        self._now_ms = now_ms
        self._clock = clock
        # State
        self.state: State | None = None
        self.reason: str | None = None
        self.facts = facts
        self.cluster_id: str | None = None
        self.leader_end: int | None = None
        self.leader_term: int | None = None
        self.seen_s: float | None = None
        """When the leader answered last."""
        self.download: Download | None = None
        self.coordinators: tuple[TopicFacts, ...] = ()
        """How far the copies of the coordinators' topics are."""
        self.coordinators_reason: str | None = "they were not asked for yet"
        """Why they cannot follow at the moment."""
        self.leader_node_id: int | None = None
        """By which clients know the leader; None until it has answered."""
        self.mirrors: MirrorsFacts | None = None
        """How far the mirrors are; None if only metadata and coordinators' topics are followed."""
        self._line_s = float("-inf")

    @property
    def lag(self) -> int | None:
        """The entries that the leader had at its last answer and that are not applied here."""
        return None if self.leader_end is None else max(0, self.leader_end - self.facts.end)

    @property
    def not_ready(self) -> str | None:
        """Why it does not have what the leader had a moment ago; None if it has."""
        if self.state is not State.CURRENT:
            return str(self.state)
        if self.coordinators_reason is not None:
            return f"the coordinators' topics: {self.coordinators_reason}"
        for topic in self.coordinators:
            if topic.waiting:
                return f"{topic.name}: {topic.waiting[0]}"
            if topic.lag > LAG_OFFSETS_MAX:
                return f"{topic.name}: {count_text(topic.lag, 'offset')} behind"
        return None if self.mirrors is None else self.mirrors.not_ready

    def enter(self, state: State, reason: str | None = None) -> None:
        """Note a state. Prints a line if it or its reason has changed."""
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        self._print()

    def answered(self, facts: CopyFacts, term: int, leader_end: int | None) -> None:
        """Note what an answer of the leader has changed."""
        self.facts, self.leader_term, self.seen_s = facts, term, self._clock()
        if leader_end is not None:
            self.leader_end = leader_end
            self._compare()

    def received(self, snapshot_end: int, position: int, size: int, count: int) -> None:
        """Note `count` bytes of a snapshot, up to `position`. Prints a line once in a while."""
        now_s, download = self._clock(), self.download
        if download is None or download.end != snapshot_end:
            self.download = download = Download(
                end=snapshot_end,
                size=size,
                position=position,
                began_at=position - count,
                began_s=now_s,
            )
        download.position, download.size = position, size
        if self.state is not State.INSTALLING:
            self._line_s = now_s
            self.enter(State.INSTALLING)
        elif now_s - self._line_s >= LINE_SECONDS or position >= size:
            self._line_s = now_s
            self._print()
        if position >= size:
            self.download = None

    def coordinators_answered(self, facts: tuple[TopicFacts, ...]) -> None:
        """Note how far the copies of the coordinators' topics are."""
        self.coordinators, self.coordinators_reason = facts, None

    def mirrors_answered(self, facts: MirrorsFacts) -> None:
        """Note how far the mirrors of all other topics are."""
        self.mirrors = facts

    def coordinators_wait(self, reason: str) -> None:
        """Note that the leader cannot be asked about the coordinators' topics, and why."""
        self.coordinators_reason = reason

    def interrupted(self) -> None:
        """Note that the connection ended: a download continues with a new rate."""
        self.download = None

    def _compare(self) -> None:
        lag = self.lag
        assert lag is not None
        limit = LAG_ENTRIES_MAX if self.state is State.CURRENT else 0
        self.enter(State.CURRENT if lag <= limit else State.CATCHING_UP)

    def _print(self) -> None:
        self._say(json.dumps(self.as_json()) if self._is_json else self._line())

    def _line(self) -> str:
        return f"{time_text(self._now_ms())} {self.state}: {self._text()}"

    def _text(self) -> str:
        facts, state = self.facts, self.state
        if state is State.CONNECTING:
            return f"to {self.leader}"
        if state is State.INSTALLING:
            return self._download_text()
        if state is State.WAITING:
            return str(self.reason)
        has = f"has the entries below {facts.end}"
        if state is State.CATCHING_UP:
            return f"{has}, the leader those below {self.leader_end}"
        return f"{has}, digest {facts.digest:032x}"

    def _download_text(self) -> str:
        download, now_s = self.download, self._clock()
        assert download is not None
        text = (
            f"snapshot of the entries below {download.end}, {size_text(download.position)} of"
            f" {size_text(download.size)}"
        )
        rate, left_s = download.bytes_per_second(now_s), download.seconds_left(now_s)
        if left_s is None:
            return text
        return f"{text}, {size_text(rate)}/s, {duration_text(left_s)} left"

    def as_json(self) -> dict[str, object]:
        """Returns everything for programs."""
        now_s, facts, download = self._clock(), self.facts, self.download
        return {
            "at_ms": self._now_ms(),
            "state": self.state,
            "reason": self.reason,
            "not_ready": self.not_ready,
            "leader": self.leader,
            "cluster_id": self.cluster_id,
            "directory": self.directory,
            "follower_id": self.follower_id,
            "end": facts.end,
            "digest": f"{facts.digest:032x}",
            "term": facts.term,
            "leader_end": self.leader_end,
            "leader_term": self.leader_term,
            "lag": self.lag,
            "seen_seconds_ago": None if self.seen_s is None else round(now_s - self.seen_s, 3),
            "snapshot_end": facts.snapshot_end,
            "installs": facts.installs,
            "disk_bytes": facts.disk_bytes,
            "coordinators": [asdict(each) for each in self.coordinators],
            "coordinators_reason": self.coordinators_reason,
            "mirrors": None if self.mirrors is None else asdict(self.mirrors),
            "download": None
            if download is None
            else {
                "snapshot_end": download.end,
                "position": download.position,
                "size": download.size,
                "bytes_per_second": round(download.bytes_per_second(now_s)),
                "seconds_left": download.seconds_left(now_s),
            },
        }
