"""Whatever clients do, claim falsely or fail to do, a group answers all of them and keeps working.

The clients of the model join, sync, beat, leave, die, come back, and lie about who they are; the
broker restarts. What must hold of each answer is checked as it is given (`GroupWorld`), what must
hold of the group after each step. At the end of each run those who behave get a stable group in
bounded time, and nothing is left of the others.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupState
from server.coordination.groups.events import Leave
from tests.harness.examples import examples
from tests.harness.group_world import (
    INITIAL_DELAY_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    GroupClient,
    GroupWorld,
)

PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"))
INSTANCES = (None, None, "s1", "s2")
ANSWER_MS_MAX = max(REBALANCE_TIMEOUT_MS, 2 * INITIAL_DELAY_MS)
BEAT_MS = 2_000
STABLE_MS_MAX = 2 * (NEW_MEMBER_JOIN_TIMEOUT_MS + SESSION_TIMEOUT_MS + REBALANCE_TIMEOUT_MS)


class GroupModel(RuleBasedStateMachine):
    """Steps of clients, of time and of the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.living: list[GroupClient] = []
        self.workers: dict[bytes, str] = {}
        """Who last heard an assignment."""
        self.has_restarted = False

    @initialize(delay_ms=st.sampled_from([0, INITIAL_DELAY_MS]), size_max=st.sampled_from([2, 99]))
    def begin(self, delay_ms: int, size_max: int) -> None:
        self.world = GroupWorld(initial_rebalance_delay_ms=delay_ms, size_max=size_max)

    # Those who behave.

    @rule(
        count=st.integers(1, 3),
        protocols=st.sampled_from(PROTOCOLS),
        instance_id=st.sampled_from(INSTANCES),
        knows_its_id=st.booleans(),
    )
    def some_come(
        self, count: int, protocols: tuple[str, ...], instance_id: str | None, knows_its_id: bool
    ) -> None:
        for _ in range(count):
            self._comes(protocols, instance_id, knows_its_id)

    def _comes(
        self, protocols: tuple[str, ...], instance_id: str | None, knows_its_id: bool
    ) -> None:
        if instance_id is not None:
            self.living = [each for each in self.living if each.instance_id != instance_id]
        client = self.world.client(
            f"c{len(self.world.clients)}",
            protocols=protocols,
            instance_id=instance_id,
            knows_its_id=knows_its_id,
        )
        self.living.append(client)
        client.join()

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def somebody_goes_on(self, data: st.DataObject) -> None:
        self._go_on(data.draw(st.sampled_from(self.living)))

    @rule(times=st.integers(1, 8))
    def everybody_goes_on(self, times: int) -> None:
        for _ in range(times):
            self._all_go_on()

    def _all_go_on(self) -> None:
        self.living = [client for client in self.living if not self._is_refused(client)]
        for client in self.living[: self.world.size_max]:
            self._go_on(client)
        self.world.pass_time(BEAT_MS)

    def _is_refused(self, client: GroupClient) -> bool:
        """After a restart a group knows only the protocol that was in use."""
        assert self.has_restarted or not client.is_refused
        return client.is_refused

    def _go_on(self, client: GroupClient) -> None:
        """The next request of a client that behaves."""
        if client.waiting is not None:
            return
        if client.synced is not None and client.synced.error_code == ErrorCode.NONE:
            if client.heartbeat() != ErrorCode.NONE:
                client.join()
        elif client.joined is None or client.synced is not None:
            client.join()
        else:
            client.sync(self.world.assignment_of(client))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def somebody_joins_again(self, data: st.DataObject, protocols: tuple[str, ...]) -> None:
        client = data.draw(st.sampled_from(self.living))
        client.protocols = protocols
        client.join()

    @precondition(lambda self: self.living)
    @rule(data=st.data(), in_order=st.booleans())
    def somebody_goes(self, data: st.DataObject, in_order: bool) -> None:
        client = data.draw(st.sampled_from(self.living))
        self.living.remove(client)
        if in_order:
            client.leave()

    # Those who don't.

    @rule()
    def somebody_asks_for_an_id_and_never_comes(self) -> None:
        self.world.client("shy")._join()

    @precondition(lambda self: self.world.clients)
    @rule(
        data=st.data(),
        what=st.sampled_from(["join", "sync", "beat", "leave", "send away"]),
        generation=st.integers(-1, 1),
        instance_id=st.sampled_from(INSTANCES),
    )
    def somebody_lies(
        self, data: st.DataObject, what: str, generation: int, instance_id: str | None
    ) -> None:
        ids = ["stranger", *(client.member_id for client in self.world.clients)]
        liar = GroupClient(self.world, "liar", instance_id=instance_id)
        liar.member_id = data.draw(st.sampled_from(ids))
        liar.generation = self.world.group.generation + generation
        match what:
            case "join":
                liar.join()
            case "sync":
                liar.sync(dict.fromkeys(ids, b"wrong generation" if generation else b"lie"))
            case "beat":
                liar.heartbeat()
            case "leave":
                liar.leave()
            case _:
                self.world.leave(Leave(member_id="", instance_id=instance_id))

    # Time and the broker.

    @rule(duration_ms=st.sampled_from([1, BEAT_MS, INITIAL_DELAY_MS, 11_000, 40_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule()
    def the_broker_restarts(self) -> None:
        self.has_restarted = True
        self.world.restart()

    # What always holds.

    @invariant()
    def everybody_is_answered_in_time(self) -> None:
        for call in self.world.waiting:
            assert self.world.now_ms - call.asked_ms <= ANSWER_MS_MAX

    @invariant()
    def nobody_else_has_the_work_of_a_member(self) -> None:
        group = self.world.group
        for client in self.world.clients:
            if client.synced is None or group.roster.get(client.member_id) is None:
                continue
            work = client.synced.assignment
            assert work != b"wrong generation"
            if work in (b"", b"lie") or client.generation != group.generation:
                continue
            assert work.endswith(f"@{group.generation}".encode())
            before = self.workers.setdefault(work, client.member_id)
            assert before == client.member_id or group.roster.get(before) is None
            self.workers[work] = client.member_id

    @invariant()
    def nothing_is_kept_of_who_is_gone(self) -> None:
        group = self.world.group
        members = list(group.roster)
        assert group.roster.awaiting_join == sum(m.join_ticket is not None for m in members)
        waiting = {id(m.join_ticket) for m in members} | {id(m.sync_ticket) for m in members}
        assert {id(call) for call in self.world.waiting} == waiting - {id(None)}
        if group.state is GroupState.EMPTY:
            assert not members
        if members:
            assert group.roster.leader_id in {member.member_id for member in members}
            assert group.roster.select_protocol()

    def teardown(self) -> None:
        """Those who behave have a stable group in bounded time; also once more when one of them has
        left, and when one has died."""
        self._settle()
        for in_order in (True, False):
            if self.living:
                client = self.living.pop(0)
                if in_order:
                    client.leave()
                self._settle()

    def _settle(self) -> None:
        world = self.world
        end_ms = world.now_ms + STABLE_MS_MAX
        while not self._is_settled() and world.now_ms < end_ms:
            self._all_go_on()
        assert self._is_settled(), "the group is stuck"

    def _is_settled(self) -> bool:
        """Those who behave have work and nothing to wait for; of nobody else anything is kept."""
        world, roster = self.world, self.world.group.roster
        living = self.living[: world.size_max]
        state = GroupState.STABLE if living else GroupState.EMPTY
        if world.waiting or roster.pending or world.group.state is not state:
            return False
        suffix = f"@{world.group.generation}".encode()
        synced = {client.synced.assignment for client in living if client.synced is not None}
        if len({work for work in synced if work.endswith(suffix)}) < len(living):
            return False
        members = {member.member_id for member in roster}
        stored = set() if world.stored is None else {m.member_id for m in world.stored.members}
        return members == stored == {client.member_id for client in living}


def test_a_group_holds_to_its_rules_whatever_its_clients_do() -> None:
    run_state_machine_as_test(
        GroupModel, settings=settings(max_examples=examples(150), stateful_step_count=40)
    )
