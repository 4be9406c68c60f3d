"""No step of a consumer group holds the loop, however many partitions it assigns.

The group sees only the table of topics, so these topics have no logs.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest

from protocol.internal_topics.consumer_protocol import Subscription, write
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.wire.error_codes import ErrorCode
from server.topics.topic import OfflineLog, Topic
from tests.harness import group_requests
from tests.harness.consumer_requests import beat_request, join_request, parts
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker
from tests.harness.watched_broker import WatchedBroker, watched_broker

TURN_SECONDS_MAX = 0.050
"""As in `test_large_requests.py`."""
TRIES = 3
SECONDS_MAX = 300.0
"""How long a test waits for an answer on a busy machine; only the turns are judged."""

FIT = 15_000
"""So many topics fit into the records of one step; a topic takes about 55 bytes."""
TOO_MANY = 100_000

M = ConsumerGroupHeartbeatResponse


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    properties = {**group_requests.AT_ONCE, "group_consumer_session_timeout_ms": "45000"}
    with watched_broker(tmp_path_factory.mktemp("broker"), **properties) as watched:

        async def prepare(served: ServedBroker) -> None:
            await served.create("t")
            topics = served.broker.topics
            config = topics.all()[0].config
            made = [("wide", FIT), *((f"{number:x}", 1) for number in range(TOO_MANY))]
            for name, count in made:
                topics._publish(
                    Topic(
                        name=name,
                        id=uuid.uuid4(),
                        config=config,
                        overrides={},
                        partitions=(OfflineLog.planned(name, 0),) * count,
                    )
                )

        watched.run(prepare)
        yield watched


async def shortest(
    broker: WatchedBroker, scene: Callable[[RawClient, int], Awaitable[None]]
) -> float:
    """Play a scene until no turn of the loop is long. Returns the longest turn of the best try."""
    turns: list[float] = []
    client = await RawClient.connect(broker.host, broker.port, timeout_s=SECONDS_MAX)
    async with client:
        for number in range(TRIES):
            with broker.longest_turn() as longest:
                await scene(client, number)
            turns.append(longest())
            if turns[-1] <= TURN_SECONDS_MAX:
                break
    return min(turns)


@pytest.mark.parametrize("names", [("wide",), tuple(f"{n:x}" for n in range(FIT))], ids=len)
async def test_members_with_many_partitions_join_share_and_leave_in_short_turns(
    broker: WatchedBroker, names: tuple[str, ...]
) -> None:
    async def scene(client: RawClient, number: int) -> None:
        group = f"many-{len(names)}-{number}"
        first = await client.call(join_request(group, "a", subscribed_topic_names=names), 1, M)
        assert first.error_code == ErrorCode.NONE
        assert sum(map(len, parts(first).values())) == FIT
        second = await client.call(join_request(group, "b", subscribed_topic_names=names), 1, M)
        assert second.error_code == ErrorCode.NONE
        assert not parts(second)
        told = await client.call(beat_request(first.member_epoch, group, "a"), 1, M)
        assert sum(map(len, parts(told).values())) == FIT // 2
        left = await client.call(beat_request(-1, group, "b"), 1, M)
        assert left.error_code == ErrorCode.NONE

    assert await shortest(broker, scene) <= TURN_SECONDS_MAX


async def test_topics_whose_records_do_not_fit_are_refused_in_short_turns(
    broker: WatchedBroker,
) -> None:
    names = tuple(f"{number:x}" for number in range(TOO_MANY))

    async def scene(client: RawClient, number: int) -> None:
        request = join_request(f"too-many-{number}", subscribed_topic_names=names)
        assert (await client.call(request, 1, M)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        # The group has not changed: the member may join with fewer topics.
        again = join_request(f"too-many-{number}", subscribed_topic_names=("t",))
        assert (await client.call(again, 1, M)).error_code == ErrorCode.NONE

    assert await shortest(broker, scene) <= TURN_SECONDS_MAX


async def test_a_classic_group_with_a_huge_subscription_is_upgraded_in_short_turns(
    broker: WatchedBroker,
) -> None:
    # Most of these topics do not exist, so that the records of the upgrade fit.
    metadata = write(Subscription(topics=tuple(f"none-{n:x}" for n in range(30_000))))

    async def scene(client: RawClient, number: int) -> None:
        group = f"upgraded-{number}"
        joined = await client.call(
            group_requests.join_request(group, metadata=metadata), 3, JoinGroupResponse
        )
        assert joined.error_code == ErrorCode.NONE
        synced = await client.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=(),
            ),
            3,
            SyncGroupResponse,
        )
        assert synced.error_code == ErrorCode.NONE
        beaten = await client.call(join_request(group), 1, M)
        assert beaten.error_code == ErrorCode.NONE, beaten

    assert await shortest(broker, scene) <= TURN_SECONDS_MAX
