"""Fetch (key 1), v4-v18.

Behaviour: answers when `min_bytes` are available, when a partition has an error or diverges, or after
`max_wait_ms`. Until then the fetch is parked, and every log that it names wakes it. The size limits are
soft: the first batch of the first non-empty partition is returned whole (KIP-74). Records are sent as
regions of segment files: never decoded, and copied only if they are small. A client whose
last_fetched_epoch shows that its log diverges from this one gets `diverging_epoch` and no records. A
read_committed consumer gets the records below the last stable offset, with the list of aborted
transactions among them. Records that are not in the page cache are first read in a thread; the
connection's next request waits for that.
A consumer beyond its quota gets an answer without topics, and its connection pauses (KIP-219).
A partition that is named more than once is read and answered once, at the position where it is named
first, with the parameters of the last one, as in Kafka.
Versions: v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch (KIP-320) · v11
rack_id · v12 last_fetched_epoch (KIP-595) · v13 topic ids (KIP-516, docs/design/topic-ids.md) · v15
to v18 fields that only replicas send, and node_endpoints, which a single broker does not need.
A fetch of partition 0 of `__cluster_metadata`, v12 and later, on the internal listener, is a follower's
(`server/handlers/shared/metadata_log.py`). On that listener a follower's permission, ClusterAction, is
also enough for the coordinators' topics, and from v12 on, since which followers can say their last
epoch, an answer may begin with batches without records, as in Kafka: they carry the last sequences of
producers. Otherwise these are only sent behind a batch with records, because kafkajs, which speaks v11,
asks for ever when it gets nothing else.
In a session (`server/fetching/`) a request names the partitions that have changed for the client, and
the answer those that have changed for the broker. A partition at the end of its log is not read until
the log changes. As in Kafka, a topic whose id was known keeps its name while it is in the session.
The view of a topic's last values is read in a thread, and its records are copied (`server/views/`).
`server/shortcut/fetch.py` answers the simplest requests before they get here, by the same rules.
Not implemented: fetching from followers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from protocol.messages.fetch import (
    IDS_SINCE,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.fetching.asked_partitions import (
    AskedPartitions,
    AskedTopic,
    TopicKey,
    refused_partition,
)
from server.fetching.session import FINAL_EPOCH, NEW_EPOCH, NO_SESSION, FetchSession, Viewpoint
from server.fetching.watch import Watch
from server.handlers.shared.checkpoint_pieces import COORDINATOR_TOPICS
from server.handlers.shared.metadata_log import (
    fetch_entries,
    is_on_internal_listener,
    may_follow,
    names_only_the_metadata,
)
from server.handlers.shared.partition_reads import PARTITIONS_PER_TURN, PartitionReads
from server.handlers.shared.topic_ids import name_of_topic
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.views.latest_view import LatestView, is_in_snapshot

UNKNOWN_TOPIC = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that metrics do not count by topic, because clients choose the names of such topics."""


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Read, wait until there is enough data, answer."""
    if request.session_epoch not in (NEW_EPOCH, FINAL_EPOCH):
        return await _continue_session(request, context)
    if names_only_the_metadata(request, context) and may_follow(context):
        return await fetch_entries(request, context)
    if request.session_id != NO_SESSION:
        context.broker.fetch_sessions.close_by_client(
            request.session_id, context.connection.principal
        )
    asked, answer, viewpoint = AskedPartitions(), None, _viewpoint(context)
    try:
        await _ask_for(asked, request, context)
        answer = await _fetch(asked, request, context, viewpoint)
        return answer
    finally:
        if answer is None or answer.session_id == NO_SESSION:
            await _free(asked, context)


def refuse(
    request: FetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FetchResponse:
    return FetchResponse(
        error_code=error_code,
        responses=lazy_array(
            lambda topic: FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=lazy_array(
                    lambda each: refused_partition(each.partition, error_code), topic.partitions
                ),
            ),
            request.topics,
        ),
    )


# Sessions


async def _continue_session(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Answer a request that continues a session."""
    session = context.broker.fetch_sessions.find(
        request.session_id,
        request.session_epoch,
        principal=context.connection.principal,
        has_ids=_has_ids(context),
    )
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session, responses=())
    session.is_in_use = True
    try:
        return await _fetch_in_session(session, request, context)
    finally:
        session.is_in_use = False
        if session.is_closed:
            await _free(session.asked, context)
        else:
            context.broker.fetch_sessions.note_end_of_use(session)


async def _fetch_in_session(
    session: FetchSession, request: FetchRequest, context: RequestContext
) -> FetchResponse | None:
    sessions, asked, viewpoint = context.broker.fetch_sessions, session.asked, _viewpoint(context)
    await _ask_for(asked, request, context)
    await _forget(session, request, context)
    # Between two slices, another client may have taken the session's slot.
    if session.is_closed:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    if not asked:
        # As in Kafka, partitions that are named and forgotten at once are read, without a session.
        sessions.close(session)
        await _ask_for(asked, request, context)
        return await _fetch(asked, request, context, viewpoint)
    if not sessions.note_use(session):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    session.advance()
    return await _fetch(asked, request, context, viewpoint, session)


def _begin_session(asked: AskedPartitions, viewpoint: Viewpoint, context: RequestContext) -> int:
    """Begin a session that owns these partitions, if there is room. Returns its id."""
    session = context.broker.fetch_sessions.create(
        asked,
        principal=context.connection.principal,
        has_ids=_has_ids(context),
        viewpoint=viewpoint,
    )
    return NO_SESSION if session is None else session.id


def _viewpoint(context: RequestContext) -> Viewpoint:
    authorizer, connection = context.broker.authorizer, context.connection
    acls_revision = 0 if authorizer is None else authorizer.revision
    return acls_revision, connection.client_host, connection.endpoint.name


# The partitions of a request


async def _ask_for(asked: AskedPartitions, request: FetchRequest, context: RequestContext) -> None:
    """Add the partitions that the request names, or take their new parameters."""
    pace, has_ids, is_long = context.pace, _has_ids(context), _is_long(request.topics)
    new_topic = partial(_new_topic, context)
    for topic in request.topics:
        key = topic.topic_id if has_ids else topic.topic
        if not is_long:
            asked.add(key, topic.partitions, new_topic)
            continue
        for start in range(0, max(len(topic.partitions), 1), PARTITIONS_PER_TURN):
            if pace.is_over:
                await pace.rest()
            asked.add(key, topic.partitions[start : start + PARTITIONS_PER_TURN], new_topic)


async def _forget(session: FetchSession, request: FetchRequest, context: RequestContext) -> None:
    """Remove the partitions that the request forgets."""
    pace = context.pace
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if session.has_ids else topic.topic
        for start in range(0, max(len(topic.partitions), 1), PARTITIONS_PER_TURN):
            if pace.is_over:
                await pace.rest()
            session.forget(key, topic.partitions[start : start + PARTITIONS_PER_TURN])


async def _look_up_again(
    asked: AskedPartitions, context: RequestContext, *, everything: bool
) -> None:
    """Look up the session's topics whose names or rights may have changed since its last request.

    Args:
        everything: whether those that were found and could be read may have changed, too.
    """
    pace = context.pace
    for topic in tuple(asked.topics):
        if pace.is_over:
            await pace.rest()
        # A view ends when its topic is no longer compacted, a topic in a snapshot with the snapshot.
        may_end = topic.is_view or topic.is_in_snapshot
        if everything or not topic.name or not topic.may_read or may_end:
            _look_up(topic, context)


def _new_topic(context: RequestContext, key: TopicKey) -> AskedTopic:
    topic = AskedTopic(key, None) if isinstance(key, str) else AskedTopic("", key)
    _look_up(topic, context)
    return topic


def _look_up(topic: AskedTopic, context: RequestContext) -> None:
    """Find the topic's name, if it has none yet, and what the client may do with it."""
    if not topic.name and topic.id is not None:
        topic.name = name_of_topic(topic.id, context)
    topic.is_followed = _may_follow(topic.name, context)
    found = context.broker.readable_topics.get(topic.name)
    topic.is_view = isinstance(found, LatestView)
    topic.is_in_snapshot = is_in_snapshot(found)
    topic.may_read = not topic.name or topic.is_followed or _may_read(topic.name, context)


async def _free(asked: AskedPartitions, context: RequestContext) -> None:
    """Free the partitions that nobody uses any longer, in slices if there are many."""
    if len(asked) > PARTITIONS_PER_TURN:
        await asked.free(context.pace)


def _has_ids(context: RequestContext) -> bool:
    return context.header.api_version >= IDS_SINCE


def _is_long(topics: Sequence[FetchTopic]) -> bool:
    if len(topics) > PARTITIONS_PER_TURN:
        return True
    return sum([len(topic.partitions) for topic in topics]) > PARTITIONS_PER_TURN


# What the client may do


def _may_follow(name: str, context: RequestContext) -> bool:
    """Returns whether a topic is a coordinator's, and the client may follow it as a standby."""
    may_be_followed = name in COORDINATOR_TOPICS and is_on_internal_listener(context)
    # Quiet, because consumers may read these topics there too.
    return may_be_followed and context.may(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, quiet=True
    )


def _may_read(name: str, context: RequestContext) -> bool:
    return context.may(Operation.READ, ResourceType.TOPIC, name)


# Read, wait, answer


async def _fetch(
    asked: AskedPartitions,
    request: FetchRequest,
    context: RequestContext,
    viewpoint: Viewpoint,
    session: FetchSession | None = None,
) -> FetchResponse | None:
    """Answer with what is in the partitions. `session` owns them; None: the request does.

    A full request may begin a session, which owns them afterwards; then the answer has its id.

    Args:
        viewpoint: the one before anything was looked up for the request.
    """
    reads = PartitionReads(asked, request, context)
    is_same_view = session is not None and session.viewpoint == viewpoint
    session_id = NO_SESSION if session is None else session.id
    try:
        if session is not None:
            await _look_up_again(asked, context, everything=not is_same_view)
        await reads.read_all(skips_unchanged=is_same_view)
        if not reads.is_ready:
            await _wait(reads, request.max_wait_ms / 1000, context, session)
        elif session is not None:
            await _cover(reads, session)
        if context.connection.is_lost:
            return None
        if context.usage is not None and not context.usage.charge_fetch(reads.bytes):
            return FetchResponse(session_id=session_id, responses=())
        begins = session is None and request.session_epoch == NEW_EPOCH
        responses = await _responses(reads, context, session=session, begins=begins)
        if begins:
            session_id = _begin_session(asked, viewpoint, context)
        elif session is not None:
            session.viewpoint = viewpoint
        reads.hand_over()
        return FetchResponse(session_id=session_id, responses=responses)
    finally:
        await reads.free()


async def _wait(
    reads: PartitionReads, timeout_s: float, context: RequestContext, session: FetchSession | None
) -> None:
    """Wait until there is enough data, the timeout passes or the connection ends."""
    clock, connection = context.broker.clock, context.connection
    deadline_s = clock.monotonic() + timeout_s
    kept = None if session is None else session.take_watch()
    watch = Watch(context.broker.fetch_waiters) if kept is None else kept
    parked = watch.parked
    try:
        if kept is None:
            connection.park(parked)
            await reads.cover_all(watch)
        else:
            parked.resume()
            connection.park(parked)
            await reads.cover_done(watch)
            await reads.cover_changed(watch)
        while not reads.is_ready and not connection.is_ending:
            rest_s = deadline_s - clock.monotonic()
            if rest_s <= 0:
                return
            if not parked.is_woken:
                await parked.wait(rest_s)
            await reads.read_again(watch.take_changed())
    finally:
        connection.park(None)
        _leave(watch, session)


async def _cover(reads: PartitionReads, session: FetchSession) -> None:
    """Let the session's watch, if it has one, cover what a request has read that need not wait."""
    watch = session.take_watch()
    if watch is not None:
        try:
            await reads.cover_done(watch)
        finally:
            _leave(watch, session)


def _leave(watch: Watch, session: FetchSession | None) -> None:
    """Keep a watch for the next request of the session, or end it."""
    if session is None or session.is_closed:
        watch.parked.leave()
    else:
        session.keep_watch(watch)


async def _responses(
    reads: PartitionReads, context: RequestContext, *, session: FetchSession | None, begins: bool
) -> tuple[FetchableTopicResponse, ...]:
    """Returns the answer's topics. The pins and copies are still those of `reads`.

    Args:
        session: the one that the request continues; the answer has only its news.
        begins: whether the answer may begin a session.
    """
    pace, probe = context.pace, context.broker.probe
    is_long = len(reads.done) > PARTITIONS_PER_TURN
    by_topic: dict[AskedTopic, list[PartitionData]] = {}
    for asked in reads.done:
        if is_long and pace.is_over:
            await pace.rest()
        if session is None or asked.is_news:
            by_topic.setdefault(asked.topic, []).append(asked.data(reads.isolation))
        if session is not None and asked.bytes:
            session.asked.move_to_end(asked)
        if session is not None or begins:
            asked.note_answer()
        if asked.error_code not in UNKNOWN_TOPIC:
            failed = asked.error_code != ErrorCode.NONE
            probe.partition_fetched(asked.topic.name, asked.bytes, is_failed=failed)
    responses = []
    for topic in tuple(by_topic):
        if is_long and pace.is_over:
            await pace.rest()
        responses.append(topic.response(by_topic.pop(topic)))
    return tuple(responses)
