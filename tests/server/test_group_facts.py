"""What commands make of groups, and of a broker that still reads them."""

from __future__ import annotations

import pytest

from protocol.consumer_protocol import Assignment, TopicPartitions, write
from protocol.error_codes import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from server.command_end import CommandFailed
from server.group_facts import Progress, by_topic, loaded, readers_of, refuse_running


def member(name: str, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=name,
        client_id=name,
        client_host="/127.0.0.1",
        member_metadata=b"",
        member_assignment=assignment,
    )


def group(*members: DescribedGroupMember, protocol_type: str = "consumer") -> DescribedGroup:
    return DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=members,
    )


def assigned(*partitions: int) -> bytes:
    parts = TopicPartitions(topic="orders", partitions=partitions)
    return write(Assignment(assigned_partitions=(parts,)))


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [(3, 0, 5, 2), (None, 0, 5, None), (3, None, None, None), (3, 4, 9, 5), (9, 0, 5, 0)],
    ids=["behind", "nothing", "gone", "before_the_start", "beyond_the_end"],
)
def test_the_lag_counts_offsets_that_can_still_be_read(
    committed: int | None, start: int | None, end: int | None, lag: int | None
) -> None:
    each = Progress(part=("orders", 0), committed=committed, start=start, end=end, member=None)

    assert each.lag == lag


def test_readers_are_who_has_a_partition_assigned() -> None:
    one, two, odd = member("a", assigned(0, 2)), member("b", assigned()), member("c", b"\0")

    assert readers_of(group(one, two, odd)) == {("orders", 0): one, ("orders", 2): one}
    assert readers_of(group(one, protocol_type="connect")) == {}


def test_a_group_with_members_is_not_changed() -> None:
    refuse_running(group(), "offsets are reset")
    with pytest.raises(CommandFailed, match="g has 2 members: stop them first"):
        refuse_running(group(member("a", b""), member("b", b"")), "offsets are reset")


async def test_a_broker_that_still_reads_its_groups_is_asked_again() -> None:
    answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]

    async def ask() -> ErrorCode:
        return answers.pop(0)

    assert await loaded(ask, int) == ErrorCode.NONE
    answers.insert(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await loaded(ask, int, seconds_max=0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_partitions_are_sorted_by_topic() -> None:
    assert by_topic({("b", 1), ("a", 3), ("a", 0)}) == {"a": [0, 3], "b": [1]}
