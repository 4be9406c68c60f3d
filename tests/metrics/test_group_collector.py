"""Consumer groups in a scrape: so many at most, those that lag most, and sums of all."""

from __future__ import annotations

from metrics.facts import GroupFacts, GroupOffset, GroupTopicFacts
from tests.harness.scraped_world import ScrapedWorld

MANAGER = "kafka_coordinator_group_groupmetadatamanager"


def group(
    group_id: str,
    *offsets: tuple[int, int, int | None] | tuple[int, int, int | None, int | None],
    state: str = "Stable",
    members: int = 1,
    protocol: str = "classic",
) -> GroupFacts:
    topics = (
        [GroupTopicFacts("orders", [GroupOffset(*each) for each in offsets])] if offsets else []
    )
    return GroupFacts(
        group_id=group_id, state=state, members_count=members, protocol=protocol, topics=topics
    )


def test_a_group_shows_its_offsets_its_lag_and_its_members() -> None:
    world = ScrapedWorld(groups=[group("g", (0, 30, 10, 4), (1, 5, 0, 0), (2, 9, None), members=3)])

    samples = world.samples()

    assert samples["kafka_consumergroup_current_offset", "orders", "0", "g"] == 30
    assert samples["kafka_consumergroup_lag", "orders", "0", "g"] == 10
    assert samples["kafka_consumergroup_lag", "orders", "1", "g"] == 0
    assert samples["kafka_consumergroup_current_offset", "orders", "2", "g"] == 9
    assert ("kafka_consumergroup_lag", "orders", "2", "g") not in samples
    assert samples["kafka_consumergroup_current_offset_sum", "orders", "g"] == 44
    assert samples["kafka_consumergroup_lag_sum", "orders", "g"] == 10
    assert samples["kompakt_group_record_lag", "orders", "0", "g"] == 4
    assert samples["kompakt_group_record_lag", "orders", "1", "g"] == 0
    assert ("kompakt_group_record_lag", "orders", "2", "g") not in samples
    assert samples["kompakt_group_record_lag_sum", "orders", "g"] == 4
    assert samples["kafka_consumergroup_members", "g"] == 3


def test_groups_are_counted_by_protocol() -> None:
    world = ScrapedWorld(
        groups=[
            group("a"),
            group("b", protocol="consumer"),
            group("c", protocol="consumer", state="Assigning"),
        ]
    )

    samples = world.samples()

    metrics = "kafka_server_group_coordinator_metrics"
    assert samples[f"{metrics}_group_count", "classic"] == 1
    assert samples[f"{metrics}_group_count", "consumer"] == 2
    assert samples[f"{metrics}_consumer_group_count", "Assigning"] == 1
    assert samples[f"{metrics}_consumer_group_count", "Stable"] == 1
    assert samples[f"{metrics}_consumer_group_count", "Empty"] == 0


def test_what_cannot_be_read_of_a_coordinators_topic_is_counted() -> None:
    world = ScrapedWorld(coordinator_partitions={"loading": 1, "active": 47, "failed": 2})

    samples = world.samples()

    partitions = ("kompakt_coordinator_partitions", "__consumer_offsets")
    assert samples[*partitions, "loading"] == 1
    assert samples[*partitions, "active"] == 47
    assert samples[*partitions, "failed"] == 2


def test_groups_are_counted_by_state() -> None:
    world = ScrapedWorld(
        groups=[
            group("a", (0, 1, 1)),
            group("b", state="Empty", members=0),
            group("c", state="Empty", members=0),
            group("d", state="PreparingRebalance"),
        ]
    )

    samples = world.samples()

    assert samples[f"{MANAGER}_numgroups",] == 4
    assert samples[f"{MANAGER}_numgroupsstable",] == 1
    assert samples[f"{MANAGER}_numgroupsempty",] == 2
    assert samples[f"{MANAGER}_numgroupspreparingrebalance",] == 1
    assert samples[f"{MANAGER}_numgroupscompletingrebalance",] == 0
    assert samples[f"{MANAGER}_numoffsets",] == 1


def test_no_number_of_groups_makes_a_scrape_large_and_those_that_lag_most_are_shown() -> None:
    groups = [group(f"g{n:03}", (0, 1, n), (1, 1, n), members=n) for n in range(300)]
    world = ScrapedWorld(groups=groups, listed_max=4)

    samples = world.samples()

    listed = [key[1:] for key in samples if key[0] == "kafka_consumergroup_lag"]
    assert sorted(listed) == [
        ("orders", part, name) for part in ("0", "1") for name in ("g298", "g299")
    ]
    records = [key[1:] for key in samples if key[0] == "kompakt_group_record_lag"]
    assert sorted(records) == sorted(listed)
    sums = {key[2] for key in samples if key[0] == "kompakt_group_record_lag_sum"}
    assert sums == {key[2] for key in samples if key[0] == "kafka_consumergroup_lag_sum"}
    members = {key[1] for key in samples if key[0] == "kafka_consumergroup_members"}
    assert sums == members == {"g296", "g297", "g298", "g299"}
    assert samples[f"{MANAGER}_numoffsets",] == 600


def test_where_nothing_is_listed_groups_are_still_counted() -> None:
    samples = ScrapedWorld(groups=[group("g", (0, 1, 1))], listed_max=0).samples()
    assert samples[f"{MANAGER}_numgroups",] == 1
    assert not [key for key in samples if key[0].startswith("kafka_consumergroup")]
