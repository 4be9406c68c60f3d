"""A classic group with its clients and its time, without a broker: for examples and for the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.internal_topics.group_records import GroupMetadataValue
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group, GroupSettings, GroupState
from server.coordination.groups.classic.restore import restored
from server.coordination.groups.events import Join, Leave, MemberProtocol, Sync
from server.coordination.groups.outcome import HeartbeatAnswer, Joined, Left, Outcome, Synced
from tests.harness.group_time import pass_time

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 30_000
INITIAL_DELAY_MS = 3_000


@dataclass(eq=False)
class Call:
    """A request that waits for its answer; it is its own ticket."""

    client: GroupClient
    asked_ms: int
    answer: Joined | Synced | Left | None = None


@dataclass(eq=False)
class GroupClient:
    """A client's knowledge; its methods send its requests."""

    world: GroupWorld
    name: str
    instance_id: str | None = None
    protocols: tuple[str, ...] = ("range",)
    protocol_type: str = "consumer"
    metadata: bytes = b"topics"
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    knows_its_id: bool = False
    can_skip_assignment: bool = True
    member_id: str = ""
    generation: int = -1
    joined: Joined | None = None
    """The answer to the last successful JoinGroup."""
    synced: Synced | None = None
    waiting: Call | None = None
    is_refused: bool = False
    """It has no protocol in common with its group, and gives up, as clients do."""

    def join(self) -> Call:
        """Join; join again if the answer only gives it a member id."""
        call = self._join()
        if isinstance(call.answer, Joined) and call.answer.error_code == 79:
            call = self._join()
        return call

    def _join(self) -> Call:
        self.synced = None
        world = self.world
        event = Join(
            member_id=self.member_id,
            instance_id=self.instance_id,
            new_member_id=world.new_member_id(self.instance_id or self.name),
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocol_type=self.protocol_type,
            protocols=tuple(MemberProtocol(each, self.metadata) for each in self.protocols),
            knows_its_id=self.knows_its_id,
            can_skip_assignment=self.can_skip_assignment,
        )
        call = self.waiting = world.call(self)
        world.owed(world.group.join(event, call, now_ms=world.now_ms))
        return call

    def sync(self, assignments: dict[str, bytes] | None = None) -> Call:
        world = self.world
        event = Sync(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments=assignments or {},
        )
        call = self.waiting = world.call(self)
        world.owed(world.group.sync(event, call, now_ms=world.now_ms))
        return call

    def heartbeat(self) -> ErrorCode:
        return self.world.group.heartbeat(
            self.member_id, self.instance_id, self.generation, now_ms=self.world.now_ms
        )

    def leave(self) -> tuple[ErrorCode, ...]:
        return self.world.leave(Leave(member_id=self.member_id, instance_id=self.instance_id))

    @property
    def leads(self) -> bool:
        return self.joined is not None and self.joined.leader_id == self.member_id

    def hear(self, answer: Joined | Synced | Left) -> None:
        """Act on an answer as clients do."""
        self.waiting = None
        if isinstance(answer, Left):
            return
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id, self.joined = "", None
        elif isinstance(answer, Synced):
            self.synced = answer
        elif answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self.is_refused = True
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code == ErrorCode.NONE:
            self.joined = answer
            self.member_id, self.generation = answer.member_id, answer.generation


@dataclass
class GroupWorld:
    """A group whose records are stored, with a clock that tests control."""

    initial_rebalance_delay_ms: int = INITIAL_DELAY_MS
    size_max: int = 1 << 31
    now_ms: int = 1_000_000
    stored: GroupMetadataValue | None = None
    """The last record."""
    clients: list[GroupClient] = field(default_factory=list)
    waiting: list[Call] = field(default_factory=list)
    deadline_ms: int | None = None
    records_count: int = 0
    notes: list[str] = field(default_factory=list)
    generation: int = 0
    _member_ids: int = 0

    def __post_init__(self) -> None:
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms, size_max=self.size_max
        )
        self.group = Group("group", self.settings, now_ms=self.now_ms)

    def client(self, name: str, **settings: object) -> GroupClient:
        client = GroupClient(self, name, **settings)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    def new_member_id(self, name: str) -> str:
        self._member_ids += 1
        return f"{name}-{self._member_ids}"

    def call(self, client: GroupClient) -> Call:
        call = Call(client, self.now_ms)
        self.waiting.append(call)
        return call

    def leave(self, *leaving: Leave) -> tuple[ErrorCode, ...]:
        call = self.call(GroupClient(self, "leaving"))
        self.owed(self.group.leave(leaving, call, now_ms=self.now_ms))
        assert isinstance(call.answer, Left)
        return call.answer.error_codes

    def owed(self, outcome: Outcome) -> None:
        """Carry out a step's outcome: store its records, then deliver its answers."""
        for record in outcome.records:
            assert isinstance(record.value, GroupMetadataValue)
            self.stored = record.value
            self.records_count += 1
        self.deadline_ms = outcome.deadline_ms
        self.notes += outcome.notes
        assert self.group.generation >= self.generation, "a generation never goes back"
        self.generation = self.group.generation
        for answer in outcome.answers:
            assert not isinstance(answer.value, HeartbeatAnswer)
            self._check(answer.value)
            call = answer.ticket
            assert isinstance(call, Call)
            assert call.answer is None, "answered twice"
            self.waiting.remove(call)
            call.answer = answer.value
            if call.client.waiting is call:
                call.client.hear(answer.value)

    def _check(self, answer: Joined | Synced | Left) -> None:
        """Check what must hold for every answer."""
        if isinstance(answer, Left) or answer.error_code != ErrorCode.NONE:
            return
        roster = self.group.roster
        if isinstance(answer, Joined):
            assert answer.generation == self.group.generation
            assert roster.get(answer.member_id) is not None
            heard = [member.member_id for member in answer.members]
            assert heard in ([], [member.member_id for member in roster])
            return
        assert self.stored is not None, "an assignment was sent before it was written"
        assert self.stored.generation == self.group.generation
        assert answer.assignment in [bytes(each.assignment) for each in self.stored.members]  # type: ignore[arg-type]

    def pass_time(self, duration_ms: int) -> None:
        pass_time(self, duration_ms)

    def restart(self) -> None:
        """Restart the broker from what it has written."""
        for call in self.waiting:
            if call.client.waiting is call:
                call.client.waiting = None
        self.waiting.clear()
        self.generation = 0 if self.stored is None else self.stored.generation
        if self.stored is None:
            self.group = Group("group", self.settings, now_ms=self.now_ms)
            self.deadline_ms = None
        else:
            self.group = restored("group", self.stored, self.settings, now_ms=self.now_ms)
            self.owed(self.group.expire(self.now_ms))

    def stabilize(self, *clients: GroupClient) -> None:
        """Let these clients join and sync; the leader assigns each its name."""
        for client in clients:
            client.join()
        self.pass_time(2 * self.initial_rebalance_delay_ms)
        for client in clients:
            client.sync(self.assignment_of(client))
        assert self.group.state is GroupState.STABLE

    def assignment_of(self, client: GroupClient) -> dict[str, bytes] | None:
        """Returns a leader's assignments, which name member id and generation; None for others."""
        if not client.leads or client.joined is None:
            return None
        return {
            member.member_id: f"{member.member_id}@{client.generation}".encode()
            for member in client.joined.members
        }
