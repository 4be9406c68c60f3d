"""Runs one standby until a signal stops it, it cannot continue, or it is promoted.

A standby of a whole broker has its copies in `DIR/standby` and is a broker without listeners on DIR
(`whole_broker.py`); once it is promoted, this process serves DIR like `kompakt serve`. A standby of the
metadata only has its copies in DIR.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cli.base.access import current
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.standby.coordinator_copies import CoordinatorCopies
from cli.standby.coordinator_following import CoordinatorFollowing
from cli.standby.directory import StandbyDirectory, check_whole, leader_name, open_directory
from cli.standby.endpoint import Promotions, open_endpoint
from cli.standby.following import Following
from cli.standby.metadata_copy import MetadataCopy
from cli.standby.mirrors import STARTING
from cli.standby.progress import Progress, State
from cli.standby.takeover import Takeover
from cli.standby.whole_broker import WholeBroker, standby_link
from replog.trigger import CompactionSettings
from server.client.pauses import STANDBY, Pauses
from server.config.config import BrokerConfig
from server.config.listeners.addresses import HttpListener
from server.net.listener import ListenError
from server.run import serve
from server.runtime.signals import StopSignal
from server.runtime.tasks import awaited
from server.standby.promotion import Promotion, Report, begin_promotion, read_report
from server.standby.rejoin import begin_rejoin, has_led
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOCK, join
from storage.files.paths import STANDBY as STANDBY_DIRECTORY
from storage.formats.meta_properties import read_meta_properties
from storage.log.directory_start import make_durably


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOptions:
    """What the user has chosen."""

    leader: str
    data: Path
    http: HttpListener | None
    is_json: bool
    config: BrokerConfig | None
    """The configuration of the broker; None: only metadata and coordinators' topics are followed."""
    rejoins: bool = False
    """Whether the directory may be a broker's, which is to follow the one that has taken over."""


async def run_standby(options: StandbyOptions) -> int:
    """Follow until SIGTERM or SIGINT. Returns the exit code.

    Raises:
        CommandFailed: the directory cannot be used, or the standby cannot continue.
    """
    signal = StopSignal()
    async with AsyncExitStack() as stack:
        promoted = await Standby(options, signal, stack).run()
        if promoted is None:
            return 0
        assert options.config is not None
        return await promoted.serve(options.config, signal)


class Promoted:
    """A standby that was promoted: the broker on its directory."""

    def __init__(
        self, read: Callable[[], Report], promotions: Promotions, progress: Progress
    ) -> None:
        """
        Args:
            read: returns the report once the broker has started.
        """
        self._read = read
        self._promotions = promotions
        self._progress = progress

    async def serve(self, config: BrokerConfig, signal: StopSignal) -> int:
        """Serve until a signal comes. Returns the exit code. Raises CommandFailed."""

        def when_started() -> None:
            self._progress.enter(State.PROMOTED)
            self._promotions.ended(self._read())

        try:
            failure = await serve(config, signal, when_started=when_started)
        except (ListenError, StorageError) as error:
            failure = str(error)
            self._promotions.ended(failure)
        if failure is not None:
            raise CommandFailed(EXIT_FAILED, failure)
        return 0


class Standby:
    """One standby, from the opening of its directory to its end."""

    def __init__(self, options: StandbyOptions, signal: StopSignal, stack: AsyncExitStack) -> None:
        """
        Args:
            stack: closes what outlives a promotion.
        """
        # Constant after construction
        self._options = options
        self._signal = signal
        self._stack = stack
        self._files = LocalFileSystem()

    async def run(self) -> Promoted | None:
        """Follow until a signal comes, or until the promotion has begun. Returns None after a signal.

        Raises:
            CommandFailed: the directory cannot be used, or the standby cannot continue.
        """
        # One thread: it does all disk work of the copy, so that the loop only moves messages.
        with ThreadPoolExecutor(1, thread_name_prefix="standby") as worker:
            in_worker = partial(asyncio.get_running_loop().run_in_executor, worker)
            try:
                directory = await in_worker(self._opened_directory)
            except StorageError as error:
                raise CommandFailed(EXIT_FAILED, str(error)) from error
            try:
                return await self._follow(directory, worker)
            finally:
                directory.close()

    def _opened_directory(self) -> StandbyDirectory:
        path = str(self._options.data.absolute())
        if self._options.config is None:
            return open_directory(self._files, path)
        is_brokers = check_whole(self._files, path, may_rejoin=self._options.rejoins)
        make_durably(self._files, path)
        if not is_brokers:
            return open_directory(self._files, join(path, STANDBY_DIRECTORY))
        # The broker must have stopped; its start as a standby takes the lock once more.
        lock = self._files.lock(join(path, LOCK))
        try:
            meta = read_meta_properties(self._files, path)
            assert meta is not None, "it was looked for"
            begin_rejoin(self._files, path)
            directory = open_directory(self._files, join(path, STANDBY_DIRECTORY))
            directory.join_cluster(meta.cluster_id)
            return directory
        finally:
            lock.release()

    async def _follow(
        self, directory: StandbyDirectory, worker: ThreadPoolExecutor
    ) -> Promoted | None:
        options, loop = self._options, asyncio.get_running_loop()
        copy = MetadataCopy(directory.files, directory.metadata_path, CompactionSettings())
        try:
            facts = await loop.run_in_executor(worker, copy.open)
        except StorageError as error:
            raise CommandFailed(EXIT_FAILED, str(error)) from error
        progress = Progress(
            facts,
            leader=options.leader,
            directory=str(options.data.absolute()),
            follower_id=leader_name(directory.directory_id),
            is_json=options.is_json,
            say=lambda line: print(line, flush=True),  # noqa: T201
            now_ms=lambda: time.time_ns() // 1_000_000,
            clock=time.monotonic,
        )
        progress.cluster_id = directory.cluster_id
        following = Following(options.leader, directory, copy, progress, worker, Pauses(STANDBY))
        copies = CoordinatorCopies(directory.files, directory.path, CompactionSettings())
        coordinators = CoordinatorFollowing(
            options.leader, directory, copies, progress, Pauses(STANDBY)
        )
        whole = self._whole(copy, progress, worker)
        takeover = (
            None
            if whole is None
            else Takeover(options.leader, current(), progress, whole, coordinators)
        )
        promotions = Promotions(takeover)
        work: list[Coroutine[Any, Any, Any]] = [following.run(), coordinators.run()]
        if whole is not None:
            progress.mirrors_answered(STARTING)
            work.append(whole.run())
        promotion = None
        try:
            if options.http is not None:
                endpoint = await open_endpoint(options.http, progress, coordinators, promotions)
                self._stack.push_async_callback(endpoint.close)
            promotion = await _until_ended(work, self._signal, takeover)
        finally:
            if whole is not None:
                await whole.close()
            await coordinators.close()
            copy.stop()
            await loop.run_in_executor(worker, copy.close)
            if promotion is None:
                progress.enter(State.STOPPED)
        if promotion is None:
            return None
        path = str(options.data.absolute())
        await loop.run_in_executor(worker, begin_promotion, self._files, path, promotion)
        read = partial(read_report, self._files, path, promotion.promoted_ms)
        return Promoted(read, promotions, progress)

    def _whole(
        self, copy: MetadataCopy, progress: Progress, worker: ThreadPoolExecutor
    ) -> WholeBroker | None:
        options = self._options
        if options.config is None:
            return None

        async def partition_counts(topics: Sequence[tuple[str, uuid.UUID]]) -> list[int]:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(worker, copy.partition_counts, topics)

        led = has_led(self._files, str(options.data.absolute()))
        link = standby_link(progress.follower_id, options.leader, current(), has_led=led)
        return WholeBroker(options.config, link, progress, self._files, partition_counts)


async def _until_ended(
    work: list[Coroutine[Any, Any, Any]], signal: StopSignal, takeover: Takeover | None
) -> Promotion | None:
    """Follow until a signal comes, or the standby takes over. Raises what ends the following."""
    tasks: list[asyncio.Future[Any]] = [awaited(each) for each in (*work, signal.wait())]
    decided = None if takeover is None else takeover.decided
    waiting = tasks if decided is None else [*tasks, decided]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if decided is not None and decided.done():
            return decided.result()
        for each in done:
            each.result()
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
