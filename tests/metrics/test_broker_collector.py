"""What a scrape shows of the broker as a whole, under the names that Kafka's dashboards ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.broker_collector import disk_bytes
from tests.harness.scraped_world import ScrapedWorld, partition

STRIMZI_KAFKA = [
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "process_open_fds",
]
"""What strimzi-kafka.json asks a broker for (Strimzi 1.0); the JVM's and the container's own aside."""
STRIMZI_EXPORTER = [
    "kafka_broker_info",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_topic_partitions",
]
"""What strimzi-kafka-exporter.json asks for, groups aside."""
STRIMZI_ALERTS = [
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_controller_kafkacontroller_activecontrollercount",
]


@pytest.fixture
def world() -> ScrapedWorld:
    world = ScrapedWorld(
        partitions=[partition("orders", 0), partition("orders", 1)], partitions_offline=1
    )
    world.server.batch_appended("orders", 1, 100)
    world.server.connection_opened("PLAINTEXT")
    return world


@pytest.mark.parametrize(
    "asked", [STRIMZI_KAFKA, STRIMZI_EXPORTER, STRIMZI_ALERTS], ids=["kafka", "exporter", "alerts"]
)
def test_every_name_that_strimzi_s_dashboards_ask_for_is_served(
    world: ScrapedWorld, asked: list[str]
) -> None:
    shown = {name for name, *_ in world.samples()}

    assert set(asked) - shown == set()


def test_partitions_are_counted_as_one_broker_has_them(world: ScrapedWorld) -> None:
    samples = world.samples()

    assert samples["kafka_server_replicamanager_partitioncount",] == 2
    assert samples["kafka_server_replicamanager_leadercount",] == 1
    assert samples["kafka_server_replicamanager_offlinereplicacount",] == 1
    assert samples["kafka_controller_kafkacontroller_offlinepartitionscount",] == 1
    assert samples["kafka_controller_kafkacontroller_globaltopiccount",] == 1
    assert samples["kafka_topic_partition_leader", "orders", "0"] == 7
    assert samples["kafka_topic_partition_in_sync_replica", "orders", "1"] == 1
    assert samples["kafka_topic_partition_under_replicated_partition", "orders", "1"] == 0
    assert samples["kafka_broker_info", "broker.example:9092", "7"] == 1


def test_the_loop_is_shown_as_the_network_processor_and_the_request_handler(
    world: ScrapedWorld,
) -> None:
    samples = world.samples()

    assert samples["kafka_network_socketserver_networkprocessoravgidle_percent",] == 0.75
    assert samples["kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",] == 0.75
    assert samples["kompakt_loop_longest_stall_seconds", "Fetch", "wall"] == 0.25
    assert samples["kompakt_loop_longest_stall_seconds", "Fetch", "cpu"] == 0.125
    assert samples["kompakt_loop_stalls_total", "Fetch"] == 3
    assert samples["kompakt_loop_busy_seconds_total",] == 12.5


def test_requests_are_counted_and_timed_by_api_under_kafka_s_names(world: ScrapedWorld) -> None:
    for _ in range(4):
        world.server.request_completed("Metadata", 0.001)

    samples = world.samples()

    assert samples["kafka_network_requestmetrics_requests_total", "Metadata"] == 4
    assert samples["kafka_network_requestmetrics_totaltimems", "0.99", "Metadata"] == 1


def test_the_kernel_is_asked_what_the_disks_did(tmp_path: Path) -> None:
    (tmp_path / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n")

    assert disk_bytes(tmp_path / "io") == (4096, 8192)
    assert disk_bytes(tmp_path / "absent") is None


def test_the_coordinators_checkpoints_are_shown(world: ScrapedWorld) -> None:
    samples = world.samples()

    place = ("__consumer_offsets", "49")
    assert samples["kompakt_coordinator_checkpoint_bytes", *place] == 700
    assert samples["kompakt_coordinator_checkpoint_end_offset", *place] == 90
    assert samples["kompakt_coordinator_replay_seconds", *place] == 0.03
    assert samples["kompakt_coordinator_checkpoint_seconds", *place] == 0.25


def test_the_metadata_log_and_its_bound_are_shown(world: ScrapedWorld) -> None:
    samples = world.samples()

    assert samples["kompakt_replog_disk_bytes", "metadata"] == 3_000
    assert samples["kompakt_replog_disk_bound_bytes", "metadata"] == 9_000
    assert samples["kompakt_replog_replay_seconds", "metadata"] == 0.02
    assert samples["kompakt_replog_snapshot_seconds", "metadata"] == 0.5
    assert samples["kompakt_replog_u", "metadata"] == 0.1
