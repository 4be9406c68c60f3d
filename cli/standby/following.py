"""Follows a leader until the standby stops: connect, ask, hand the answer to the copy, ask again.

The copy is used in one worker thread; the loop only moves messages. A broken connection, a leader that
restarts, a missing permission and too many downloads are waited for, with growing pauses. A leader of
another cluster, one that lacks what was committed here, and a failing disk end the standby.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, ParamSpec, TypeVar

from cli.base.broker_client import BrokerClient
from cli.standby.connection import Retry, follow_until_broken
from cli.standby.copy_thread import Ended, in_thread
from cli.standby.directory import StandbyDirectory
from cli.standby.metadata_copy import MetadataCopy
from cli.standby.progress import Progress, State
from cli.standby.requests import (
    UNKNOWN_EPOCH,
    Answered,
    Asker,
    Refused,
    check_term,
    fetch_answer,
    fetch_request,
    snapshot_answer,
    snapshot_request,
)
from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from replog.messages import Entries, Fetch, Request, SnapshotBytes
from server.client.pauses import Pauses

P = ParamSpec("P")
T = TypeVar("T")

GONE = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})
HIDDEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""What a leader answers to a client that may not follow."""


class Following:
    """One standby's way to its leader. Runs on the loop."""

    def __init__(
        self,
        leader: str,
        directory: StandbyDirectory,
        copy: MetadataCopy,
        progress: Progress,
        worker: ThreadPoolExecutor,
        pauses: Pauses,
    ) -> None:
        """
        Args:
            leader: host:port of its internal listener.
            copy: opened; only `worker`, which has one thread, uses it.
        """
        # Constant after construction
        self._leader = leader
        self._directory = directory
        self._copy = copy
        self._progress = progress
        self._worker = worker
        self._pauses = pauses
        # State
        # The leader's term; at first that of the last entry, which it has at least.
        self._term = progress.facts.term or UNKNOWN_EPOCH

    async def run(self) -> NoReturn:
        """Follow until the task is cancelled.

        Raises:
            CommandFailed: it cannot continue; the text says what to do.
        """
        while True:
            if self._progress.state is not State.WAITING:
                self._progress.enter(State.CONNECTING)
            ended = await follow_until_broken(self._leader, self._follow)
            self._progress.interrupted()
            self._progress.enter(State.WAITING, ended.reason)
            await asyncio.sleep(self._pauses.next(ended.at_least_s))

    async def _follow(self, client: BrokerClient) -> NoReturn:
        """Ask over one connection until it breaks."""
        cluster_id = await self._join(client)
        if not client.serves(ApiKey.FETCH_SNAPSHOT):
            raise Retry(
                f"{self._leader} is not the listener of inter.broker.listener.name: followers read the"
                " metadata only there"
            )
        await self._in_worker(self._copy.connected)
        request = await self._in_worker(self._copy.request)
        is_first = True
        while True:
            asker = Asker(
                directory_id=self._directory.directory_id, cluster_id=cluster_id, term=self._term
            )
            try:
                answered = await _ask(client, request, asker)
            except Refused as refused:
                request = await self._after(refused, request)
                continue
            await self._receive(answered)
            if not is_first:
                # The first answer may have no news, and what is wrong comes with the next one.
                self._pauses.reset()
            is_first = False
            if answered.throttle_ms:
                await asyncio.sleep(answered.throttle_ms / 1000)
            following = await self._in_worker(self._copy.request)
            if following == request and not isinstance(answered.answer, Entries):
                raise Retry(f"{self._leader} repeats an answer that changes nothing here")
            request = following

    async def _join(self, client: BrokerClient) -> str:
        """Check the leader's cluster. Returns its id."""
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        answer = await client.call(request, MetadataResponse)
        found = answer.cluster_id
        if not found:
            raise Retry(f"{self._leader} does not say to which cluster it belongs")
        self._progress.leader_node_id = next((each.node_id for each in answer.brokers), None)
        await self._in_worker(self._directory.join_cluster, found)
        self._progress.cluster_id = found
        return found

    async def _receive(self, answered: Answered) -> None:
        answer = answered.answer
        self._term = answered.term
        facts = await self._in_worker(self._copy.receive, answer)
        if isinstance(answer, SnapshotBytes):
            count = len(answer.data)
            end = answer.snapshot.end
            self._progress.received(end, answer.position + count, answer.size, count)
        self._progress.answered(facts, answered.term, answered.end)

    async def _after(self, refused: Refused, request: Request) -> Request:
        """Returns what to ask after an error; raises if this connection or the standby ends."""
        code = refused.code
        if code in GONE:
            return await self._in_worker(self._copy.give_up_snapshot)
        if code is ErrorCode.FENCED_LEADER_EPOCH and refused.term > self._term:
            self._term = refused.term
            return request
        if code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            raise Ended(
                f"the leader is in term {refused.term}, and this standby has followed it in term"
                f" {self._term}: it was restored from an older backup. To follow it, empty"
                f" {self._directory.path}"
            )
        if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise Ended(f"{self._leader} belongs to another cluster than {self._directory.path}")
        if code in HIDDEN:
            raise Retry(
                f"{self._leader} does not let this client follow ({code.name}): it needs ClusterAction"
                " on the cluster, and --of must be the listener of inter.broker.listener.name"
            )
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            text = "other standbys are downloading a snapshot from the leader"
            raise Retry(text, refused.throttle_ms / 1000)
        raise Retry(f"the leader answered {refused}")

    async def _in_worker(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(self._worker, work, *args, **kwargs)


async def _ask(client: BrokerClient, request: Request, asker: Asker) -> Answered:
    if isinstance(request, Fetch):
        message = fetch_request(request, asker)
        answered = fetch_answer(request, await client.call(message, FetchResponse))
    else:
        asked = snapshot_request(request, asker)
        answered = snapshot_answer(request, await client.call(asked, FetchSnapshotResponse))
    check_term(asker, answered)
    return answered
