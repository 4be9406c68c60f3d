"""`kompakt doctor`: looks at a configuration and its machine, and says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from protocol.messages.metadata import MetadataRequest, MetadataResponse
from server import doctor_findings as findings
from server import doctor_probes as probes
from server.addresses import Listener
from server.broker_client import connected
from server.command_end import EXIT_FAILED, CommandFailed
from server.command_output import print_json
from server.config import BrokerConfig
from server.config_sources import read_sources
from server.doctor_findings import Finding, Status, fault, fine, warning
from storage.config_property import ConfigError
from storage.errors import StorageError
from storage.local_files import ReadOnlyFileSystem
from storage.meta_properties import read_meta_properties

STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.FAULT: "bold red"}
STATUS_WIDTH, CHECK_WIDTH = 7, 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the configuration comes from, as for `serve`."""

    file: Path | None
    overrides: Sequence[str]


def examine(sources: Sources, *, as_json: bool) -> int:
    """Print every finding; the exit code is 1 if there is a fault."""
    found = []
    for finding in _look(sources):
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


def _look(sources: Sources) -> Iterator[Finding]:
    """Each finding as soon as it is there; a wrong configuration ends it."""
    notes = _Notes()
    try:
        with notes:
            texts = read_sources(
                file=sources.file, environment=os.environ, overrides=sources.overrides
            )
            config = BrokerConfig.from_texts(texts)
    except ConfigError as error:
        for problem in error.problems:
            yield fault(
                "configuration", problem, "put that right; kompakt serve ends with 2 for it"
            )
        return
    yield fine("configuration", f"properties set: {len(texts)}")
    for note in notes.warnings:
        yield warning("configuration", note, "see that it is spelled as Kafka spells it")
    yield findings.judge_descriptors(probes.descriptor_limit())
    for path in config.data_directories:
        yield from _look_at_directory(path, config)
    yield _look_at_clock(config)
    available = probes.available_memory()
    if available is not None and config.cleans:
        wanted = config.log_cleaner_dedupe_buffer_size
        yield findings.judge_memory(wanted=wanted, available=available)
    for listener in config.resolved_listeners():
        yield from _look_at_listener(listener)


class _Notes(logging.Handler):
    """Keeps the warnings of what is done in a `with`, instead of printing them."""

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


def _look_at_directory(path: str, config: BrokerConfig) -> Iterator[Finding]:
    yield _look_at_label(path, config)
    there = probes.existing_part(path)
    if not os.access(there, os.W_OK | os.X_OK):
        yield fault(
            "permissions",
            f"{there} may not be written by user {os.geteuid()}",
            f"chown -R {os.geteuid()} {there}, or run as its owner",
        )
        return
    yield fine(
        "permissions",
        f"{path} may be written" if there == Path(path).absolute() else f"{path} can be made",
    )
    kind = probes.file_system(there)
    yield findings.judge_file_system(path, kind)
    try:
        free, total = probes.space(there)
        yield findings.judge_space(path, free=free, total=total)
        yield findings.judge_syncs(path, probes.sync_seconds(there), kind)
    except OSError as error:
        yield fault("disk", f"{path}: {error.strerror}", "look at the disk: dmesg, df, df -i")


def _look_at_label(path: str, config: BrokerConfig) -> Finding:
    """Whose directory it is, and how its last broker ended."""
    check = "data"
    if not Path(path).is_dir():
        return fine(check, f"{path} is not there yet")
    try:
        meta = read_meta_properties(ReadOnlyFileSystem(), path)
        if meta is None:
            return fine(check, f"{path} is empty, or no broker's yet")
        cluster_id = config.cluster_id or meta.cluster_id
        meta.check(path, cluster_id=cluster_id, node_id=config.node_id)
    except StorageError as error:
        return fault(check, str(error), "name another directory in log.dirs, or put node.id right")
    if probes.is_locked(path) and not _is_answered(config, meta.cluster_id):
        return fault(
            check,
            f"{path} is held by a running broker, which does not listen where this configuration says",
            "stop that broker first, or name another directory in log.dirs",
        )
    failed = Path(path) / ".sync-failed"
    if failed.exists():
        return warning(
            check,
            f"{path}: a sync failed in its last run: {failed.read_text(errors='replace').strip()}",
            "look at the disk (dmesg, smartctl); the next start reads all from it, not from the cache",
        )
    return fine(check, f"{path} is cluster {meta.cluster_id}'s, node {meta.node_id}'s")


def _look_at_clock(config: BrokerConfig) -> Finding:
    ahead = max(probes.ahead_seconds(path) for path in config.data_directories)
    return findings.judge_clock(is_kept=probes.is_clock_kept(), newest_data_ahead_seconds=ahead)


# ---------------------------------------------------------------- listeners


def _look_at_listener(listener: Listener) -> Iterator[Finding]:
    yield _look_at_port(listener)
    yield findings.judge_advertised(
        listener,
        is_container=probes.is_container(),
        host_name=socket.gethostname(),
        addresses=probes.addresses_of(listener.advertised.host),
    )


def _look_at_port(listener: Listener) -> Finding:
    """Whether it is free, or a broker has it, who then has to be reached as clients are told."""
    bind, check = listener.bind, "listener"
    error = probes.who_holds(bind.host, bind.port)
    if error is None:
        return fine(check, f"port {bind.port} is free")
    if error.errno != errno.EADDRINUSE:
        why = error.strerror or str(error)
        return fault(
            check, f"{bind} cannot be listened on: {why}", "name an address of this machine"
        )
    told = listener.advertised
    try:
        answer = asyncio.run(_ask(str(told).partition("://")[2]))
    except CommandFailed as failed:
        return fault(
            check,
            f"port {bind.port} is taken, and where clients are told to go, {failed}",
            "if it is another program's, name another port in listeners; if it is the broker's, put"
            " advertised.listeners right",
        )
    return fine(
        check, f"a broker of cluster {answer.cluster_id} answers at {told.host}:{told.port}"
    )


def _is_answered(config: BrokerConfig, cluster_id: str) -> bool:
    """Whether a broker of this cluster answers where a client of this configuration would ask."""
    for listener in config.resolved_listeners():
        if probes.who_holds(listener.bind.host, listener.bind.port) is not None:
            try:
                answer = asyncio.run(_ask(str(listener.advertised).partition("://")[2]))
            except CommandFailed:
                continue
            if answer.cluster_id == cluster_id:
                return True
    return False


async def _ask(address: str) -> MetadataResponse:
    async with connected(address) as client:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        return await client.call(request, MetadataResponse)
