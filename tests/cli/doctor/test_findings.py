"""The doctor's findings for given facts."""

from __future__ import annotations

import pytest

from cli.doctor.findings import (
    Finding,
    Status,
    judge_advertised,
    judge_clock,
    judge_descriptors,
    judge_file_system,
    judge_memory,
    judge_replog,
    judge_space,
    judge_syncs,
)
from replog.trigger import CompactionSettings
from server.config.listeners.addresses import Address, Listener

GIB = 1 << 30


def listener(bind: str, told: str) -> Listener:
    return Listener(
        bind=Address(name="PLAINTEXT", host=bind, port=9092),
        advertised=Address(name="PLAINTEXT", host=told, port=9092),
    )


def advertised(
    bind: str, told: str, addresses: list[str] | None, *, is_container: bool = False
) -> Finding:
    return judge_advertised(
        listener(bind, told), is_container=is_container, host_name="c0ffee", addresses=addresses
    )


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        pytest.param(judge_descriptors(256), Status.FAULT, id="few_descriptors"),
        pytest.param(judge_descriptors(4096), Status.WARNING, id="some_descriptors"),
        pytest.param(judge_descriptors(1 << 20), Status.OK, id="many_descriptors"),
        pytest.param(judge_space("d", free=1 << 20, total=GIB), Status.FAULT, id="full"),
        pytest.param(judge_space("d", free=GIB, total=20 * GIB), Status.WARNING, id="nearly_full"),
        pytest.param(judge_space("d", free=20 * GIB, total=900 * GIB), Status.OK, id="room"),
        pytest.param(judge_space("d", free=GIB, total=2 * GIB), Status.OK, id="small_disk"),
        pytest.param(judge_file_system("d", "tmpfs"), Status.WARNING, id="memory"),
        pytest.param(judge_file_system("d", "nfs4"), Status.WARNING, id="remote"),
        pytest.param(judge_file_system("d", "ext4"), Status.OK, id="disk"),
        pytest.param(judge_syncs("d", [0.001, 0.001, 0.5], "ext4"), Status.OK, id="usual_syncs"),
        pytest.param(judge_syncs("d", [0.03] * 3, "ext4"), Status.WARNING, id="slow_syncs"),
        pytest.param(judge_syncs("d", [0.000001] * 3, "ext4"), Status.WARNING, id="no_syncs"),
        pytest.param(judge_syncs("d", [0.000001] * 3, "tmpfs"), Status.OK, id="told_already"),
        pytest.param(
            judge_clock(is_synchronised=True, newest_data_ahead_seconds=3600),
            Status.FAULT,
            id="future",
        ),
        pytest.param(
            judge_clock(is_synchronised=False, newest_data_ahead_seconds=-1),
            Status.WARNING,
            id="no_ntp",
        ),
        pytest.param(
            judge_clock(is_synchronised=True, newest_data_ahead_seconds=-1), Status.OK, id="kept"
        ),
        pytest.param(
            judge_clock(is_synchronised=None, newest_data_ahead_seconds=-1), Status.OK, id="unsaid"
        ),
        pytest.param(
            judge_replog(
                "/m", log_bytes=9, snapshot_bytes=9, replay_ms=150, settings=CompactionSettings()
            ),
            Status.OK,
            id="short_replay",
        ),
        pytest.param(
            judge_replog(
                "/m", log_bytes=9, snapshot_bytes=9, replay_ms=2_500, settings=CompactionSettings()
            ),
            Status.WARNING,
            id="no_snapshot_for_long",
        ),
        pytest.param(judge_memory(wanted=2 * GIB, available=GIB), Status.WARNING, id="no_memory"),
        pytest.param(judge_memory(wanted=GIB, available=2 * GIB), Status.OK, id="memory_enough"),
    ],
)
def test_how_bad_it_is(finding: Finding, status: Status) -> None:
    assert finding.status is status
    assert bool(finding.remedy) is (status is not Status.OK), "who is told also hears what to do"


@pytest.mark.parametrize(
    ("finding", "status", "words"),
    [
        pytest.param(
            advertised("0.0.0.0", "nowhere.invalid", None),
            Status.FAULT,
            "a name that does not resolve here",
            id="unknown",
        ),
        pytest.param(
            advertised("0.0.0.0", "localhost", ["127.0.0.1", "::1"]),
            Status.WARNING,
            "would connect to themselves",
            id="loopback_for_everybody",
        ),
        pytest.param(
            advertised("", "localhost", ["127.0.0.1"], is_container=True),
            Status.WARNING,
            "only clients on the host itself can connect",
            id="loopback_in_a_container",
        ),
        pytest.param(
            advertised("0.0.0.0", "c0ffee", ["172.17.0.2"], is_container=True),
            Status.WARNING,
            "unknown outside",
            id="container_id",
        ),
        pytest.param(
            advertised("127.0.0.1", "127.0.0.1", ["127.0.0.1"]),
            Status.OK,
            "are sent to",
            id="local",
        ),
        pytest.param(
            advertised("0.0.0.0", "kafka.example", ["10.0.0.7"]),
            Status.OK,
            "are sent to",
            id="named",
        ),
    ],
)
def test_where_clients_are_told_to_go(finding: Finding, status: Status, words: str) -> None:
    assert finding.status is status
    assert words in finding.text
