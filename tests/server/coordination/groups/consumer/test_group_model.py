"""Whatever clients, topics and the broker do: no partition has two owners, and those who behave get
all of them.

The clients of the model join, beat, lose answers, take their time with what they must give up, leave,
die and come back; topics come, grow and go; the broker restarts. After each step the group must be
what its records say; at the end of each run those who behave share all partitions in bounded time,
and nothing is left of the others.
"""

from __future__ import annotations

from collections import Counter

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
from server.coordination.groups.consumer.group import ConsumerGroupState
from server.coordination.groups.consumer.state import state_of
from tests.harness.consumer_world import (
    BEAT_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ClassicClient,
    ConsumerClient,
    ConsumerWorld,
    told_of,
)
from tests.harness.examples import examples

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = (
    (("a",), None),
    (("a", "b"), None),
    (("b", "c"), None),
    ((), "[ab]"),
    (("c",), "a"),
)
PATIENCE_MS = SESSION_TIMEOUT_MS + REBALANCE_TIMEOUT_MS


class ConsumerGroupModel(RuleBasedStateMachine):
    """Steps of clients, of topics, of time and of the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld()
        self.living: list[ConsumerClient | ClassicClient] = []
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0

    @initialize(
        assignors=st.sampled_from([("uniform", "range"), ("range",)]),
        size_max=st.sampled_from([3, 99]),
    )
    def begin(self, assignors: tuple[str, ...], size_max: int) -> None:
        self.world = ConsumerWorld(assignors=assignors, size_max=size_max)
        self.world.topics.put("a", 5)

    # Those who behave.

    @rule(
        count=st.integers(1, 3),
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance_id=st.sampled_from([None, None, "i1", "i2"]),
    )
    def some_come(
        self,
        count: int,
        subscription: tuple[tuple[str, ...], str | None],
        instance_id: str | None,
    ) -> None:
        for _ in range(1 if instance_id else count):
            topics, regex = subscription
            client = self.world.client(topics=topics, regex=regex, instance_id=instance_id)
            if client.beat().error_code == ErrorCode.NONE:
                self.living.append(client)

    @rule(
        count=st.integers(1, 2),
        topics=st.sampled_from([("a",), ("a", "b"), ("c",)]),
        is_eager=st.booleans(),
    )
    def some_of_the_classic_protocol_come(
        self, count: int, topics: tuple[str, ...], is_eager: bool
    ) -> None:
        for _ in range(count):
            client = self.world.classic_client(topics=topics, is_eager=is_eager)
            if client.beat().error_code == ErrorCode.NONE:
                self.living.append(client)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), is_lost=st.booleans())
    def somebody_beats(self, data: st.DataObject, is_lost: bool) -> None:
        self._beats(data.draw(st.sampled_from(self.living)), is_lost=is_lost)

    def _beats(self, client: ConsumerClient | ClassicClient, *, is_lost: bool = False) -> None:
        client.beat(is_lost=is_lost)
        if client.has_failed:
            self.living.remove(client)

    @rule(times=st.integers(1, 4))
    def everybody_beats(self, times: int) -> None:
        for _ in range(times):
            for client in tuple(self.living):
                self._beats(client)
            self.world.pass_time(BEAT_MS)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), subscription=st.sampled_from(SUBSCRIPTIONS))
    def a_member_changes_its_subscription(
        self, data: st.DataObject, subscription: tuple[tuple[str, ...], str | None]
    ) -> None:
        topics, regex = subscription
        data.draw(st.sampled_from(self.living)).subscribe(*topics, regex=regex or "")

    @precondition(lambda self: self.living)
    @rule(data=st.data(), is_slow=st.booleans())
    def somebody_takes_his_time(self, data: st.DataObject, is_slow: bool) -> None:
        data.draw(st.sampled_from(self.living)).revokes_slowly = is_slow

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.living))
        self.living.remove(client)
        client.leave()

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def somebody_dies(self, data: st.DataObject) -> None:
        self.living.remove(data.draw(st.sampled_from(self.living)))

    @precondition(lambda self: any(client.instance_id for client in self.living))
    @rule(data=st.data(), comes_back=st.booleans())
    def a_static_member_goes_away(self, data: st.DataObject, comes_back: bool) -> None:
        consumers = [client for client in self.living if isinstance(client, ConsumerClient)]
        static = [client for client in consumers if client.instance_id]
        client = data.draw(st.sampled_from(static))
        client.goes_away()
        self.living.remove(client)
        if comes_back:
            back = self.world.client(topics=client.topics, instance_id=client.instance_id)
            if back.beat().error_code == ErrorCode.NONE:
                self.living.append(back)

    # Topics, time and the broker.

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def a_topic_grows(self, name: str, more: int) -> None:
        known = self.world.topics.get(name)
        self.world.topics.put(name, more + (0 if known is None else len(known.partitions)))

    @precondition(lambda self: self.world.topics.by_name)
    @rule(data=st.data())
    def a_topic_goes(self, data: st.DataObject) -> None:
        self.world.topics.delete(data.draw(st.sampled_from(sorted(self.world.topics.by_name))))

    @rule(duration_ms=st.sampled_from([1_000, BEAT_MS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule()
    def the_broker_restarts(self) -> None:
        self.world.restart()

    # What holds.

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self.world.group.data.members
        held = Counter(
            (topic, number)
            for member in members.values()
            for holding in (member.assigned, member.revoking)
            for topic, numbers in holding.items()
            for number in numbers
        )
        assert not held or max(held.values()) == 1
        believed = Counter(
            part
            for client in self.living
            if client.member_id in members and not client.is_unaware
            for part in client.owned
            if self.world.topics.by_id(part[0]) is not None
        )
        assert not believed or max(believed.values()) == 1, believed

    @invariant()
    def epochs_never_go_back(self) -> None:
        data = self.world.group.data
        assert data.epoch >= self.group_epoch
        assert data.assignment_epoch <= data.epoch
        self.group_epoch = data.epoch
        for member in data.members.values():
            if member.epoch > 0:
                assert member.epoch >= self.epochs.get(member.member_id, 0)
                assert member.epoch <= data.assignment_epoch
                self.epochs[member.member_id] = member.epoch

    @invariant()
    def the_group_is_what_its_records_say(self) -> None:
        assert told_of(state_of(self.world.stored.values())) == told_of(self.world.group.data)

    @invariant()
    def nothing_is_kept_of_who_has_gone(self) -> None:
        group = self.world.group
        members = group.data.members.keys()
        assert group.data.targets.keys() <= members
        assert group.data.regexes.keys() == {
            m.regex for m in group.data.members.values() if m.regex
        }
        assert group._session_deadlines.keys() == members
        assert group._rebalance_deadlines.keys() <= members

    def teardown(self) -> None:
        world = self.world
        for client in self.living:
            client.revokes_slowly = False
        for _ in range(2 * PATIENCE_MS // BEAT_MS):
            for client in tuple(self.living):
                self._beats(client)
            world.pass_time(BEAT_MS)
        if not self.living:
            assert world.group.state is ConsumerGroupState.EMPTY
            assert not world.group.data.members
            return
        assert world.group.state is ConsumerGroupState.STABLE, world.group.data.members
        wanted = {
            (topic.id, number)
            for topic in world.topics.all()
            if topic.name in world.group.data.topics
            for number in topic.partitions
        }
        has = [part for client in self.living for part in client.owned]
        assert sorted(has) == sorted(wanted)


def test_a_group_serves_those_who_behave_whatever_the_others_do() -> None:
    run_state_machine_as_test(
        ConsumerGroupModel,
        settings=settings(max_examples=examples(200), stateful_step_count=30, deadline=None),
    )
