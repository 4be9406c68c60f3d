"""Carries out `kompakt doctor`: checks a configuration and its machine, and suggests remedies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cleaner.rules.harmful_settings import Harm
from cli.base.broker_client import connected
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.output import print_json
from cli.base.topic_facts import topic_names
from cli.base.topic_warnings import harms_by_topic
from cli.doctor import findings, probes, tls
from cli.doctor.coordinator_checkpoints import coordinator_loads
from cli.doctor.damaged_segments import check_damaged_segments
from cli.doctor.findings import Finding, Status, fault, fine, warning
from cli.doctor.followers import check_replication
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from replog.replica import sizes_in
from replog.trigger import ReplayRate
from server.config.config import BrokerConfig
from server.config.listeners.addresses import Listener
from server.config.sources import read_sources
from storage.files.errors import StorageError
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import METADATA, NODE_METADATA, join
from storage.formats.config_property import ConfigError
from storage.formats.meta_properties import read_meta_properties

STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.FAULT: "bold red"}
STATUS_WIDTH, CHECK_WIDTH = 7, 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of the configuration, as for `serve`."""

    file: Path | None
    overrides: Sequence[str]


def examine(sources: Sources, *, as_json: bool) -> int:
    """Print every finding, and return the exit code: 1 if there is a fault."""
    found = []
    for finding in _check_all(sources):
        found.append(finding)
        if not as_json:
            _print(finding)
    counts = {status: sum(each.status is status for each in found) for status in Status}
    if as_json:
        rows = [
            {
                "check": each.check,
                "status": each.status.value,
                "text": each.text,
                "remedy": each.remedy,
            }
            for each in found
        ]
        totals = {f"{status.value}_count": count for status, count in counts.items()}
        print_json({"findings": rows, **totals})
    else:
        typer.echo(f"faults: {counts[Status.FAULT]}, warnings: {counts[Status.WARNING]}")
    return EXIT_FAILED if counts[Status.FAULT] else 0


def _print(finding: Finding) -> None:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=STATUS_WIDTH, style=STYLES[finding.status])
    line.add_column(width=CHECK_WIDTH)
    line.add_column(overflow="fold")
    line.add_row(*map(Text, (finding.status.value, finding.check, finding.text)))
    if finding.remedy:
        line.add_row("", "", Text(f"-> {finding.remedy}"))
    Console(highlight=False).print(line)


def _check_all(sources: Sources) -> Iterator[Finding]:
    """Yield each finding as soon as it is made. A wrong configuration ends the checks."""
    captured = _CapturedWarnings()
    try:
        with captured:
            texts = read_sources(
                file=sources.file, environment=os.environ, overrides=sources.overrides
            )
            config = BrokerConfig.from_texts(texts)
    except ConfigError as error:
        for problem in error.problems:
            yield fault("configuration", problem, "fix it: kompakt serve would exit with code 2")
        return
    yield fine("configuration", f"properties set: {len(texts)}")
    for text in captured.warnings:
        yield warning("configuration", text, "check the spelling against Kafka's property names")
    yield findings.judge_descriptors(probes.descriptor_limit())
    for path in config.data_directories:
        yield from _check_directory(path, config)
    for name in (METADATA, NODE_METADATA):
        metadata = join(config.metadata_directory, name)
        if Path(metadata).is_dir():
            yield _check_metadata(metadata, config)
    for path in config.data_directories:
        if Path(path).is_dir():
            yield from _check_coordinators(path, config)
    yield _check_clock(config)
    available = probes.available_memory()
    if available is not None and config.cleans:
        wanted = config.log_cleaner_dedupe_buffer_size
        yield findings.judge_memory(wanted=wanted, available=available)
    for listener in config.resolved_listeners():
        yield from _check_listener(listener)
        if listener.security_protocol.has_tls:
            yield tls.check_certificate(listener, config, datetime.now(UTC))
    yield from _check_topics(config)
    yield from check_replication(config)
    yield from check_damaged_segments(config)


class _CapturedWarnings(logging.Handler):
    """Captures the warnings that the server logs during a `with` statement."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings.append(record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("server").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("server").removeHandler(self)


# ---------------------------------------------------------------- directories


def _check_directory(path: str, config: BrokerConfig) -> Iterator[Finding]:
    yield _check_owner(path, config)
    existing = probes.existing_part(path)
    if not os.access(existing, os.W_OK | os.X_OK):
        yield fault(
            "permissions",
            f"user {os.geteuid()} cannot write to {existing}",
            f"chown -R {os.geteuid()} {existing}, or run as its owner",
        )
        return
    yield fine(
        "permissions",
        f"{path} is writable" if existing == Path(path).absolute() else f"{path} can be created",
    )
    kind = probes.file_system(existing)
    yield findings.judge_file_system(path, kind)
    try:
        free, total = probes.space(existing)
        yield findings.judge_space(path, free=free, total=total)
        yield findings.judge_syncs(path, probes.sync_seconds(existing), kind)
    except OSError as error:
        yield fault("disk", f"{path}: {error.strerror}", "check the disk: dmesg, df, df -i")


def _check_metadata(path: str, config: BrokerConfig) -> Finding:
    """Check that the metadata can be read, and how long that takes at a start."""
    try:
        sizes = sizes_in(ReadOnlyFileSystem(), path)
    except StorageError as error:
        return fault("metadata", str(error), "restore it: docs/operations.md, After damage")
    return findings.judge_replog(
        path,
        log_bytes=sizes.log_bytes,
        snapshot_bytes=sizes.snapshot_bytes,
        replay_ms=ReplayRate().estimate_ms(sizes.log_entries),
        settings=config.compaction_settings(),
    )


def _check_coordinators(path: str, config: BrokerConfig) -> Iterator[Finding]:
    """Check how much of the coordinators' topics the next start reads beside their checkpoints."""
    try:
        for load in coordinator_loads(ReadOnlyFileSystem(), path):
            yield findings.judge_coordinator(path, load, config.compaction_settings())
    except StorageError as error:
        yield warning("coordinators", str(error), f"kompakt dump-log --verify {path}")


def _check_owner(path: str, config: BrokerConfig) -> Finding:
    """Check which broker a log directory belongs to, and whether a sync failed in its last run."""
    check = "data"
    if not Path(path).is_dir():
        return fine(check, f"{path} does not exist yet")
    try:
        meta = read_meta_properties(ReadOnlyFileSystem(), path)
        if meta is None:
            return fine(check, f"{path} belongs to no broker yet")
        cluster_id = config.cluster_id or meta.cluster_id
        meta.check(path, cluster_id=cluster_id, node_id=config.node_id)
    except StorageError as error:
        return fault(check, str(error), "use another directory in log.dirs, or correct node.id")
    if probes.is_locked(path) and not _is_own_broker_running(config, meta.cluster_id):
        return fault(
            check,
            f"{path} is locked by a running broker that does not use this configuration's listeners",
            "stop that broker first, or use another directory in log.dirs",
        )
    failed = Path(path) / ".sync-failed"
    if failed.exists():
        return warning(
            check,
            f"{path}: a sync failed in the last run: {failed.read_text(errors='replace').strip()}",
            "check the disk (dmesg, smartctl); the next start reads all data from the disk, not from the"
            " page cache",
        )
    return fine(check, f"{path} belongs to cluster {meta.cluster_id}, node {meta.node_id}")


def _check_clock(config: BrokerConfig) -> Finding:
    ahead = max(probes.ahead_seconds(path) for path in config.data_directories)
    return findings.judge_clock(
        is_synchronised=probes.is_clock_synchronised(), newest_data_ahead_seconds=ahead
    )


# ---------------------------------------------------------------- listeners


def _check_listener(listener: Listener) -> Iterator[Finding]:
    yield _check_port(listener)
    yield findings.judge_advertised(
        listener,
        is_container=probes.is_container(),
        host_name=socket.gethostname(),
        addresses=probes.addresses_of(listener.advertised.host),
    )


def _check_topics(config: BrokerConfig) -> Iterator[Finding]:
    """Check the settings of all topics, if a broker answers at a listener without TLS."""
    for listener in config.resolved_listeners():
        is_used = probes.bind_error(listener.bind.host, listener.bind.port) is not None
        if is_used and not listener.security_protocol.has_tls:
            with contextlib.suppress(CommandFailed):
                address = str(listener.advertised).partition("://")[2]
                yield from findings.judge_topics(asyncio.run(_request_harms(address)))
                return


async def _request_harms(address: str) -> dict[str, tuple[Harm, ...]]:
    async with connected(address) as client:
        return await harms_by_topic(client, await topic_names(client))


def _check_port(listener: Listener) -> Finding:
    """Check that the port is free, or that a broker answers at the listener's advertised address."""
    bind, check = listener.bind, "listener"
    error = probes.bind_error(bind.host, bind.port)
    if error is None:
        return fine(check, f"port {bind.port} is free")
    if error.errno != errno.EADDRINUSE:
        reason = error.strerror or str(error)
        return fault(check, f"cannot listen on {bind}: {reason}", "use an address of this machine")
    if listener.security_protocol.has_tls:
        return tls.judge_tls_port(listener)
    advertised = listener.advertised
    try:
        answer = asyncio.run(_request_metadata(str(advertised).partition("://")[2]))
    except CommandFailed as failed:
        return fault(
            check,
            f"port {bind.port} is in use, but {failed}",
            "if another program uses the port, choose another in listeners; if a broker does, fix its"
            " advertised.listeners",
        )
    return fine(
        check,
        f"a broker of cluster {answer.cluster_id} answers at {advertised.host}:{advertised.port}",
    )


def _is_own_broker_running(config: BrokerConfig, cluster_id: str) -> bool:
    """Returns whether a broker of this cluster answers at an address that this configuration
    advertises.
    """
    for listener in config.resolved_listeners():
        if probes.bind_error(listener.bind.host, listener.bind.port) is not None:
            try:
                answer = asyncio.run(
                    _request_metadata(str(listener.advertised).partition("://")[2])
                )
            except CommandFailed:
                continue
            if answer.cluster_id == cluster_id:
                return True
    return False


async def _request_metadata(address: str) -> MetadataResponse:
    async with connected(address) as client:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        return await client.call(request, MetadataResponse)
