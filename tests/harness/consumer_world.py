"""A group of the consumer protocol with its clients, topics and time, without a broker."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from protocol.internal_topics.consumer_protocol import (
    Subscription,
    TopicPartitions,
    decode_assignment,
    write,
)
from protocol.internal_topics.coordinator_records import write_key, write_value
from protocol.internal_topics.group_records import GroupKey, GroupRecord, read_record
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.member import AWAY, JOINING, LEAVING
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.consumer.settings import ConsumerSettings
from server.coordination.groups.consumer.state import ConsumerState, state_of
from server.coordination.groups.events import Assignment, Beat, Join, Leave, MemberProtocol, Sync
from server.coordination.groups.outcome import HeartbeatAnswer, Joined, Left, Outcome, Synced, Value
from tests.harness.group_time import pass_time

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 20_000
BEAT_MS = 5_000

REJOIN = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
"""Errors after which a client gives up its partitions and joins again."""

FATAL = {
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""Errors after which a client gives up."""

CONSUMER_SETTINGS = ConsumerSettings(
    session_timeout_ms=SESSION_TIMEOUT_MS,
    heartbeat_interval_ms=BEAT_MS,
    size_max=1 << 31,
    assignors=("uniform", "range"),
    migration_policy="upgrade",
)

Part = tuple[uuid.UUID, int]
Told = tuple[object, ...]
"""The complete state that a group's records describe."""


@dataclass
class FakeTopic:
    name: str
    id: uuid.UUID
    partitions: range


@dataclass
class FakeTopics:
    """A catalog that a test can change."""

    by_name: dict[str, FakeTopic] = field(default_factory=dict)
    revision: int = 0

    def get(self, name: str) -> FakeTopic | None:
        return self.by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> FakeTopic | None:
        return next((each for each in self.by_name.values() if each.id == topic_id), None)

    def all(self) -> list[FakeTopic]:
        return [self.by_name[name] for name in sorted(self.by_name)]

    def matchable(self) -> list[FakeTopic]:
        return self.all()

    def put(self, name: str, partitions_count: int) -> uuid.UUID:
        """Create a topic, or add partitions to it."""
        self.revision += 1
        known = self.by_name.get(name)
        topic_id = known.id if known is not None else uuid.UUID(int=self.revision)
        self.by_name[name] = FakeTopic(name, topic_id, range(partitions_count))
        return topic_id

    def delete(self, name: str) -> None:
        self.revision += 1
        del self.by_name[name]


@dataclass(eq=False)
class ConsumerClient:
    """A client's knowledge; its methods send its requests."""

    world: ConsumerWorld
    member_id: str
    topics: tuple[str, ...] = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = JOINING
    owned: set[Part] = field(default_factory=set)
    target: set[Part] = field(default_factory=set)
    revokes_slowly: bool = False
    """While this is set, it does not revoke partitions."""
    has_to_say_all: bool = True
    answer: HeartbeatAnswer = field(default_factory=HeartbeatAnswer)
    is_unaware = False
    """A client of this protocol owns nothing when it joins again."""

    def beat(self, *, is_lost: bool = False) -> HeartbeatAnswer:
        """Send one heartbeat. If `is_lost`, the client does not get the answer."""
        if not self.revokes_slowly:
            self.owned &= self.target
        answer = self.world.beat(self._request())
        if is_lost:
            self.has_to_say_all = True
        else:
            self.hear(answer)
        return answer

    def _request(self) -> Beat:
        says_all = self.has_to_say_all or self.epoch == JOINING
        return Beat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            topic_names=self.topics if says_all else None,
            topic_regex=self.regex if says_all else None,
            server_assignor=self.assignor,
            owned=assignment_of(self.owned),
            client_id="client",
            client_host="/127.0.0.1",
        )

    def hear(self, answer: HeartbeatAnswer) -> None:
        """Act on an answer as clients do."""
        self.answer = answer
        if answer.error_code in REJOIN | FATAL:
            self.epoch, self.owned, self.target = JOINING, set(), set()
        elif answer.error_code == ErrorCode.NONE:
            self.has_to_say_all = False
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.target = parts_of(answer.assignment)
                self.owned |= self.target

    @property
    def has_failed(self) -> bool:
        return self.answer.error_code in FATAL

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        self.topics, self.regex, self.has_to_say_all = topics, regex, True

    def leave(self, epoch: int = LEAVING) -> HeartbeatAnswer:
        self.owned, self.target = set(), set()
        beat = Beat(member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)
        answer = self.world.beat(beat)
        self.epoch = JOINING
        return answer

    def goes_away(self) -> HeartbeatAnswer:
        return self.leave(AWAY)


@dataclass(eq=False)
class ClassicClient:
    """A client of the classic protocol in the same group."""

    world: ConsumerWorld
    member_id: str
    topics: tuple[str, ...] = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    is_eager: bool = False
    """It gives up everything before it joins."""
    generation: int = -1
    owned: set[Part] = field(default_factory=set)
    revokes_slowly: bool = False
    """While this is set, it does not rejoin although it should."""
    has_joined: bool = False
    revision: int = -1
    """The topics' revision as it knows it: clients of this protocol watch the topics themselves."""
    is_unaware: bool = False
    """It was fenced and is a member again by its old id, as in Kafka, but the answer was lost: it still
    believes that it owns what it had."""
    code: ErrorCode = ErrorCode.NONE

    @property
    def has_failed(self) -> bool:
        return self.code in FATAL

    def beat(self, *, is_lost: bool = False) -> Joined:
        """Send a heartbeat, or join and sync. If `is_lost`, the JoinGroup's answer gets lost."""
        if self.has_joined:
            self._live()
        self.has_joined &= self.revision == self.world.topics.revision
        if self.has_joined or self.revokes_slowly:
            return Joined()
        if self.is_eager:
            self.owned = set()
        was_fenced = self.member_id not in self.world.group.data.members
        joined = self._join()
        self.code = joined.error_code
        if joined.error_code:
            self.owned, self.is_unaware = set(), False
        elif is_lost:
            self.is_unaware |= was_fenced and bool(self.owned)
        else:
            self.generation, self.revision = joined.generation, self.world.topics.revision
            self._sync()
        return joined

    def _live(self) -> None:
        code, outcome = self.world.group.classic_heartbeat(
            self.member_id, self.instance_id, self.generation, now_ms=self.world.now_ms
        )
        self.world.owed(outcome)
        self._heard(code)

    def _heard(self, code: ErrorCode) -> None:
        self.has_joined = code is ErrorCode.NONE
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned, self.is_unaware = set(), False

    def _join(self) -> Joined:
        known = {topic.id: topic.name for topic in self.world.topics.all()}
        owned = {part for part in self.owned if part[0] in known}
        parts = assignment_of(owned)
        subscription = Subscription(
            topics=self.topics,
            owned_partitions=tuple(
                TopicPartitions(topic=known[topic], partitions=tuple(numbers))
                for topic, numbers in parts.items()
            ),
        )
        join = Join(
            member_id=self.member_id,
            new_member_id=self.member_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", write(subscription)),),
        )
        value = self.world.answered(self.world.group.join(join, self, now_ms=self.world.now_ms))
        assert isinstance(value, Joined)
        return value

    def _sync(self) -> None:
        sync = Sync(member_id=self.member_id, generation=self.generation, assignments={})
        value = self.world.answered(self.world.group.sync(sync, self, now_ms=self.world.now_ms))
        assert isinstance(value, Synced)
        self._heard(value.error_code)
        if value.error_code:
            return
        self.is_unaware = False
        topics = self.world.topics
        assigned = decode_assignment(value.assignment).assigned_partitions
        before, self.owned = (
            self.owned,
            {
                (topic.id, number)
                for each in assigned
                if (topic := topics.get(each.topic)) is not None
                for number in each.partitions
            },
        )
        # A cooperative member that has revoked partitions rejoins to report that.
        self.has_joined = self.is_eager or before <= self.owned

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        self.topics, self.has_joined = topics, False

    def leave(self) -> None:
        self.owned = set()
        self.world.send_away(Leave(member_id=self.member_id))


@dataclass
class ConsumerWorld:
    """A group whose records are stored, with a clock that tests control."""

    assignors: tuple[str, ...] = ("uniform", "range")
    size_max: int = 1 << 31
    now_ms: int = 1_000_000
    topics: FakeTopics = field(default_factory=FakeTopics)
    stored: dict[GroupKey, GroupRecord] = field(default_factory=dict)
    """The last record of each key, without tombstones."""
    deadline_ms: int | None = None
    records: list[GroupRecord] = field(default_factory=list)
    """The records of the last step."""
    notes: list[str] = field(default_factory=list)
    clients: list[ConsumerClient | ClassicClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = replace(CONSUMER_SETTINGS, size_max=self.size_max, assignors=self.assignors)
        self.group = MixedGroup("group", self.settings, self.topics)

    def client(self, **settings: object) -> ConsumerClient:
        client = ConsumerClient(self, f"m{len(self.clients)}", **settings)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    def classic_client(self, **settings: object) -> ClassicClient:
        client = ClassicClient(self, f"c{len(self.clients)}", **settings)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    def beat(self, beat: Beat) -> HeartbeatAnswer:
        value = self.answered(self.group.heartbeat(beat, self, now_ms=self.now_ms))
        assert isinstance(value, HeartbeatAnswer)
        return value

    def answered(self, outcome: Outcome) -> Value:
        """Returns the answer of a step, which is always immediate."""
        self.owed(outcome)
        (answer,) = outcome.answers
        return answer.value

    def send_away(self, *leaving: Leave) -> tuple[ErrorCode, ...]:
        value = self.answered(self.group.leave(leaving, self, now_ms=self.now_ms))
        assert isinstance(value, Left)
        return value.error_codes

    def owed(self, outcome: Outcome) -> None:
        """Store a step's records after a round trip through their bytes."""
        self.records = list(outcome.records)
        for record in outcome.records:
            self.stored.pop(record.key, None)
            if record.value is not None:
                again = read_record(write_key(record.key), write_value(record.value))
                self.stored[record.key] = again
        self.deadline_ms = outcome.deadline_ms
        self.notes += outcome.notes

    def pass_time(self, duration_ms: int) -> None:
        pass_time(self, duration_ms)

    def restart(self) -> None:
        """Restart the broker from what it has written."""
        data = state_of(self.stored.values())
        self.group = MixedGroup("group", self.settings, self.topics, data)
        self.owed(self.group.expire(self.now_ms))

    def settle(self, *clients: ConsumerClient | ClassicClient) -> None:
        """Let these clients send heartbeats until they have their target assignments."""
        for _ in range(2 * len(clients) + 4):
            for client in clients:
                client.beat()
        assert self.group.state.value == "Stable", self.group.state


def told_of(data: ConsumerState) -> Told:
    """Returns the complete state, for a later comparison."""
    targets = {member_id: target for member_id, target in data.targets.items() if target}
    return (
        data.epoch,
        data.metadata_hash,
        data.assignment_epoch,
        dict(data.members),
        targets,
        dict(data.regexes),
    )


def assignment_of(parts: set[Part]) -> Assignment:
    return {
        topic: frozenset(number for each, number in parts if each == topic)
        for topic in {topic for topic, _ in parts}
    }


def parts_of(assignment: Assignment) -> set[Part]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}
