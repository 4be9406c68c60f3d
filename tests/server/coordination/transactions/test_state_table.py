"""The table of a transactional id's states: complete, reached in all its rows, and Apache Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from server.coordination.transactions.state_table import (
    TRANSACTION_STATES,
    Action,
    Event,
    Guard,
)
from server.coordination.transactions.transaction import Outcome, Transaction
from tests.harness.state_tables import (
    Reached,
    acting_events,
    check_actions_are_read,
    describe,
    open_combinations,
    recording,
    rows_by_state,
)
from tests.harness.transaction_scenes import RELATIONS, read
from tests.server.coordination.transactions.test_kafka_answers import STRICTER, TRANSCRIPT

FIRST_ID = 1000
A, B = TransactionPartition("t", 0), TransactionPartition("t", 1)
TIMEOUT_MS, RETENTION_MS = 60_000, 1_000_000
NOW_MS, LATE_MS = 1_000, 1 << 40
STEPS_MAX = 6
"""A transaction, and what follows it: init, add, end, complete, a change that is being written."""

Node = tuple[TransactionMetadata, TransactionMetadata | None]
"""The metadata, and the metadata that is being written."""


def test_every_combination_of_state_event_and_guard_has_exactly_one_row() -> None:
    assert open_combinations(TRANSACTION_STATES) == []


def test_a_refusal_changes_nothing_and_names_its_error() -> None:
    for row in TRANSACTION_STATES.rows:
        is_refusal = row.action is Action.REFUSE
        is_abort = row.action is Action.ABORT_AND_FENCE
        assert (row.error_code is not ErrorCode.NONE) == is_refusal or is_abort
        if row.action in (Action.REFUSE, Action.NOTHING, Action.ANSWER_AGAIN):
            assert row.next_state is None


def test_the_table_knows_all_states_that_are_ever_entered() -> None:
    fence = TransactionState.PREPARE_EPOCH_FENCE
    assert set(TRANSACTION_STATES.states) == set(TransactionState) - {fence}


def test_requests_and_time_reach_every_row_and_nothing_impossible() -> None:
    with recording(TRANSACTION_STATES) as reached:
        explore(reached)
    assert reached.missed() == []


@pytest.mark.parametrize("event", acting_events(TRANSACTION_STATES))
def test_the_action_of_each_event_is_carried_out(event: Event) -> None:
    check_actions_are_read(TRANSACTION_STATES, event, explore)


def explore(reached: Reached) -> None:
    """Ask everything in each node that a few steps lead to, from a new id and from late epochs."""
    nodes: set[Node] = {(_empty(producer_epoch=-1), None), (_empty(EPOCH_MAX - 4), None)}
    seen = set(nodes)
    for _ in range(STEPS_MAX):
        nodes = {after for node in nodes for after in _followers(node, reached)} - seen
        seen |= nodes


def _empty(producer_epoch: int) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=FIRST_ID,
        producer_epoch=producer_epoch,
        timeout_ms=TIMEOUT_MS,
        last_update_ms=NOW_MS,
    )


def _followers(node: Node, reached: Reached) -> Iterator[Node]:
    metadata, pending = node
    for ask in _requests(metadata, is_writing=pending is not None):
        transaction = Transaction("tx", metadata)
        transaction.pending = pending
        reached.steps.clear()
        outcome = ask(transaction)
        _check(metadata, outcome, reached)
        if outcome.metadata is not None:
            yield metadata, outcome.metadata
            yield outcome.metadata, None


def _check(before: TransactionMetadata, outcome: Outcome, reached: Reached) -> None:
    """Check that a step did what its row says."""
    after = before if outcome.metadata is None else outcome.metadata
    reached.check_chain(after.state)
    ((combination, step),) = reached.steps
    assert outcome.error_code is step.error_code, describe(combination)
    changes = step.action not in (Action.REFUSE, Action.NOTHING, Action.ANSWER_AGAIN)
    assert (outcome.metadata is not None) == changes, describe(combination)


Request = Callable[[Transaction], Outcome]


def _requests(metadata: TransactionMetadata, *, is_writing: bool) -> Iterator[Request]:
    yield lambda each: each.expire(retention_ms=RETENTION_MS, now_ms=NOW_MS)
    yield lambda each: each.expire(retention_ms=RETENTION_MS, now_ms=LATE_MS)
    if metadata.state is TransactionState.DEAD:
        return
    yield lambda each: each.time_out(NOW_MS)
    yield lambda each: each.time_out(LATE_MS)
    if metadata.state.is_prepared and not is_writing:
        yield lambda each: each.complete(NOW_MS)
    spare_ids = (metadata.producer_id + 1, NO_PRODUCER_ID)
    producers = _producers(metadata)
    for expected, spare_id in product((None, *producers), spare_ids):
        yield _init(expected, spare_id)
    for producer in producers:
        yield from _requests_of(producer, spare_ids)


def _producers(metadata: TransactionMetadata) -> set[Producer]:
    """Returns the producer that has the id, those that had it, and those that say so."""
    now = metadata.producer
    return {
        now,
        Producer(now.id, now.epoch - 1),
        Producer(now.id, now.epoch + 1),
        Producer(now.id, metadata.last_producer_epoch),
        Producer(now.id + 1_000, now.epoch),
        Producer(metadata.previous_producer_id, EPOCH_MAX - 1),
    }


def _requests_of(producer: Producer, spare_ids: tuple[int, ...]) -> Iterator[Request]:
    for partitions in (frozenset[TransactionPartition](), frozenset({A}), frozenset({A, B})):
        for version in (0, 2):
            yield _add(producer, partitions, version)
    for partition in (A, B):
        yield _append(producer, partition)
    for is_commit, bumps_epoch, spare_id in product((True, False), (True, False), spare_ids):
        yield _end(producer, spare_id, is_commit=is_commit, bumps_epoch=bumps_epoch)


def _init(expected: Producer | None, spare_id: int) -> Request:
    return lambda each: each.init(TIMEOUT_MS, expected, spare_producer_id=spare_id, now_ms=NOW_MS)


def _add(
    producer: Producer, partitions: frozenset[TransactionPartition], version: int = 0
) -> Request:
    return lambda each: each.add_partitions(
        producer, partitions, transaction_version=version, now_ms=NOW_MS
    )


def _append(producer: Producer, partition: TransactionPartition) -> Request:
    return lambda each: Outcome(each.write_error(producer, partition))


def _end(producer: Producer, spare_id: int, *, is_commit: bool, bumps_epoch: bool) -> Request:
    return lambda each: each.end(
        producer,
        is_commit=is_commit,
        bumps_epoch=bumps_epoch,
        spare_producer_id=spare_id,
        now_ms=NOW_MS,
    )


# Against Apache Kafka's answers.

NO_SUCH_ID = "no such id"
"""The scene without an entry: the coordinator answers it."""

OLD_FENCED = {ErrorCode.PRODUCER_FENCED: "INVALID_PRODUCER_EPOCH"}
ABORTABLE = {ErrorCode.INVALID_TXN_STATE: "TRANSACTION_ABORTABLE"}
PRODUCED = {**OLD_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS: "NOT_ENOUGH_REPLICAS"}

Probe = Callable[[Transaction, Producer], Outcome]


def _probe(make: Callable[[Producer], Request]) -> Probe:
    return lambda each, producer: make(producer)(each)


def _ends(*, is_commit: bool, bumps_epoch: bool) -> Probe:
    return _probe(
        lambda producer: _end(producer, FIRST_ID + 1, is_commit=is_commit, bumps_epoch=bumps_epoch)
    )


ADD, APPEND = _probe(lambda each: _add(each, frozenset({B}))), _probe(lambda each: _append(each, B))
INIT = _probe(lambda each: _init(each, FIRST_ID + 1))
PROBES: dict[str, tuple[Probe, dict[ErrorCode, str]]] = {
    "EndTxn v0-1 commit": (_ends(is_commit=True, bumps_epoch=False), OLD_FENCED),
    "EndTxn v0-1 abort": (_ends(is_commit=False, bumps_epoch=False), OLD_FENCED),
    "EndTxn v2-4 commit": (_ends(is_commit=True, bumps_epoch=False), {}),
    "EndTxn v2-4 abort": (_ends(is_commit=False, bumps_epoch=False), {}),
    "EndTxn v5 commit": (_ends(is_commit=True, bumps_epoch=True), {}),
    "EndTxn v5 abort": (_ends(is_commit=False, bumps_epoch=True), {}),
    "AddPartitionsToTxn v0-1": (ADD, OLD_FENCED),
    "AddPartitionsToTxn v2-3": (ADD, {}),
    "AddPartitionsToTxn v4 add": (ADD, {}),
    "AddPartitionsToTxn v4 verify": (APPEND, ABORTABLE),
    "AddPartitionsToTxn v5 add": (ADD, {}),
    "AddPartitionsToTxn v5 verify": (APPEND, ABORTABLE),
    "InitProducerId v3": (INIT, OLD_FENCED),
    "InitProducerId v4-5": (INIT, {}),
    "InitProducerId v0-5 by anybody": (
        _probe(lambda _: _init(None, FIRST_ID + 1)),
        {},
    ),
    "Produce v3-10": (APPEND, PRODUCED),
}
"""The requests that are one event each, and the names of errors in their versions."""

UNSEEN = {Guard.WRITING, Guard.ENDING, Guard.NO_SPARE_ID}
"""Guards that a client cannot bring about: they pass before its next request."""


def test_a_refusal_for_a_reason_that_passes_makes_the_client_try_again() -> None:
    for state, row in rows_by_state(TRANSACTION_STATES):
        if row.action is Action.REFUSE and UNSEEN.intersection(row.guards):
            is_empty_commit = (
                row.event is Event.COMMIT_AND_RAISE and Guard.WRITING not in row.guards
            )
            is_busy = row.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
            assert is_busy or (is_empty_commit and not state.is_prepared), describe(
                (state, row.event, row.guards)
            )


def test_every_error_is_the_one_that_kafka_answered() -> None:
    with recording(TRANSACTION_STATES) as reached:
        different = [
            f"{scene} | {request} | {relation}: Kafka {cell}, here {answered}"
            for (scene, request), cells in (read(TRANSCRIPT.read_text()) | STRICTER).items()
            if scene != NO_SUCH_ID and request in PROBES
            for relation, cell in zip(RELATIONS, cells, strict=True)
            if (answered := _answer(scene, request, relation)) != cell
        ]
        evidence = reached.rows()
    assert different == [], "\n".join(different)
    without = [
        f"{describe((state, row.event, row.guards))}: {row.error_code.name}"
        for state, row in rows_by_state(TRANSACTION_STATES)
        if row.error_code is not ErrorCode.NONE
        and not UNSEEN.issuperset(row.guards)
        and (state, row) not in evidence
    ]
    assert without == [], "\n".join(without)


def _answer(scene: str, request: str, relation: str) -> str:
    """Returns the answer as the transcript writes it."""
    transaction = _scene(scene)
    before = transaction.producer
    probe, names = PROBES[request]
    outcome = probe(transaction, _related(before, relation))
    if outcome.error_code is not ErrorCode.NONE or outcome.producer.id < 0:
        return names.get(outcome.error_code, outcome.error_code.name)
    if request.startswith("EndTxn") and "v5" not in request:
        return "NONE"
    return f"NONE, epoch{outcome.producer.epoch - before.epoch:+}"


def _related(now: Producer, relation: str) -> Producer:
    return {
        "epoch-1": Producer(now.id, now.epoch - 1),
        "epoch": now,
        "epoch+1": Producer(now.id, now.epoch + 1),
        "other id": Producer(now.id + 1_000_000, now.epoch),
    }[relation]


def _scene(name: str) -> Transaction:
    """Returns a transactional id in one of the transcript's scenes."""
    transaction = Transaction("tx", _empty(producer_epoch=-1))
    _do(transaction, _init(None, FIRST_ID + 1))
    _do(transaction, _init(None, FIRST_ID + 1))
    if name == "Empty":
        return transaction
    is_new = name.endswith("v2")
    # The old protocol adds the partition of the probes, the new one another.
    begun = _add(transaction.producer, frozenset({A if is_new else B}), 2 if is_new else 0)
    _do(transaction, begun)
    if name.startswith("Ongoing"):
        return transaction
    if "by time-out" in name:
        _do(transaction, lambda each: each.time_out(LATE_MS))
    elif "by init" in name:
        _do(transaction, _init(None, FIRST_ID + 1))
    else:
        is_commit = "commit" in name.lower()
        _do(
            transaction,
            _end(transaction.producer, FIRST_ID + 1, is_commit=is_commit, bumps_epoch=is_new),
        )
    if not name.startswith("Prepare"):
        _do(transaction, lambda each: each.complete(NOW_MS))
    if name.startswith("Empty"):
        _do(transaction, _init(None, FIRST_ID + 1))
    return transaction


def _do(transaction: Transaction, request: Request) -> None:
    transaction.begin_write(request(transaction))
    transaction.finish_write()
