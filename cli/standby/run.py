"""Runs one standby until a signal stops it or it cannot continue."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.standby.coordinator_copies import CoordinatorCopies
from cli.standby.coordinator_following import CoordinatorFollowing
from cli.standby.directory import StandbyDirectory, leader_name, open_directory
from cli.standby.endpoint import open_endpoint
from cli.standby.following import Following
from cli.standby.metadata_copy import MetadataCopy
from cli.standby.progress import Progress, State
from replog.trigger import CompactionSettings
from server.client.pauses import STANDBY, Pauses
from server.config.listeners.addresses import HttpListener
from server.runtime.signals import StopSignal
from server.runtime.tasks import awaited
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOptions:
    """What the user has chosen."""

    leader: str
    data: Path
    http: HttpListener | None
    is_json: bool


async def run_standby(options: StandbyOptions) -> int:
    """Follow until SIGTERM or SIGINT. Returns the exit code.

    Raises:
        CommandFailed: the directory cannot be used, or the standby cannot continue.
    """
    # One thread: it does all disk work of the copy, so that the loop only moves messages.
    with ThreadPoolExecutor(1, thread_name_prefix="standby") as worker:
        loop = asyncio.get_running_loop()
        files = LocalFileSystem()
        try:
            path = str(options.data.absolute())
            directory = await loop.run_in_executor(worker, open_directory, files, path)
        except StorageError as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error
        try:
            await _run(options, directory, worker)
        finally:
            directory.close()
    return 0


async def _run(
    options: StandbyOptions, directory: StandbyDirectory, worker: ThreadPoolExecutor
) -> None:
    signal, loop = StopSignal(), asyncio.get_running_loop()
    copy = MetadataCopy(directory.files, directory.metadata_path, CompactionSettings())
    try:
        facts = await loop.run_in_executor(worker, copy.open)
    except StorageError as error:
        raise CommandFailed(EXIT_FAILED, str(error)) from error
    progress = Progress(
        facts,
        leader=options.leader,
        directory=directory.path,
        follower_id=leader_name(directory.directory_id),
        is_json=options.is_json,
        say=lambda line: print(line, flush=True),  # noqa: T201
        now_ms=lambda: time.time_ns() // 1_000_000,
        clock=time.monotonic,
    )
    following = Following(options.leader, directory, copy, progress, worker, Pauses(STANDBY))
    copies = CoordinatorCopies(directory.files, directory.path, CompactionSettings())
    coordinators = CoordinatorFollowing(
        options.leader, directory, copies, progress, Pauses(STANDBY)
    )
    endpoint = None
    try:
        if options.http is not None:
            endpoint = await open_endpoint(options.http, progress, coordinators)
        await _until_stopped(following, coordinators, signal)
    finally:
        await coordinators.close()
        copy.stop()
        await loop.run_in_executor(worker, copy.close)
        progress.enter(State.STOPPED)
        if endpoint is not None:
            await endpoint.close()


async def _until_stopped(
    following: Following, coordinators: CoordinatorFollowing, signal: StopSignal
) -> None:
    """Follow until a signal comes. Raises what ends the following."""
    tasks = [awaited(each) for each in (following.run(), coordinators.run(), signal.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
