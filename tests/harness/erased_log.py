"""A log whose keys are erased by the rules of the broker, step by step, with a disk that can crash.

The steps are those of `server/erasure/erasures.py`, in one thread: look, pass, proof, certificate. At
each certificate the files of the log are searched, in another way than the proof does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from cleaner.inspect.key_traces import KeyTraces, trace_keys
from cleaner.kernel.kernel import siphash128
from cleaner.rules.hold import NO_HOLD
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Codec
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import OFFSET_MAX, Offset
from server.erasure.looks import log_facts
from server.erasure.needs import Need, Next, need_of_records, need_of_tombstone
from server.erasure.proofs import left_of, suspects_beside, tombstones_at
from server.erasure.state_table import ERASURE_STATES, Action, ErasureState, Event, Guard
from storage.files.files import FileSystem
from storage.files.paths import LOG
from storage.segment.files import SegmentFiles
from tests.harness.compacted_log import DIRECTORY, HASH_KEY, CompactedLog, meter_of
from tests.harness.log_builder import records_in
from tests.harness.memory_fs import Loss
from tests.harness.transactional_producer import TransactionalProducer

KEYS = [b"key-%d" % number for number in range(5)]
LOOKS_MAX = 40


@dataclass(slots=True)
class Erased:
    """An erasure as the store has it, and the proof that is only in memory."""

    key: bytes
    offset: int
    has_tombstone: bool
    state: ErasureState = ErasureState.CLEANING
    proof: KeyTraces | None = None
    suspects: frozenset[str] = field(default_factory=frozenset)

    @property
    def bound(self) -> int:
        """Below it the log is read in this state."""
        return self.offset + (self.state is ErasureState.ERASED and self.has_tombstone)

    def forget_proof(self) -> None:
        self.proof, self.suspects = None, frozenset()


def records_on_disk(fs: FileSystem, directory: str = DIRECTORY) -> Iterator[tuple[bytes, int]]:
    """Yields key and offset of each record in each file with records, listed in a manifest or not.

    A file may be torn: its batches count up to there.
    """
    for name in fs.list(directory):
        if LOG in name:
            yield from _records_in(fs.read_bytes(f"{directory}/{name}"))


def _records_in(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 0
    with suppress(ProtocolError):
        while at < len(data):
            batch = data[at : at + read_header(data, at).size_bytes]
            for record in records_in(batch):
                if record.key is not None:
                    yield record.key, record.offset
            at += len(batch)


class ErasedLog:
    """The log, its erasures, and random things that happen to both."""

    def __init__(self, seed: int, log: CompactedLog | None = None) -> None:
        self.random = Random(seed)
        self.log = CompactedLog() if log is None else log
        self.erasures: list[Erased] = []
        self.producer: TransactionalProducer | None = None
        self.producers = 0
        self.readers: list[SegmentFiles] = []
        self.certified = 0

    # ---------------------------------------------------------------- requests and looks

    def trace(self, key: bytes, end: int = OFFSET_MAX, *, trusts_sidecars: bool) -> KeyTraces:
        view = self.log.log.cleaning_view(as_if_rolled=True)
        return trace_keys(
            view,
            [siphash128(HASH_KEY, key)],
            self.log.settings,
            meter=meter_of(self.log.log, view.generation),
            end_offset=Offset(end),
            trusts_sidecars=trusts_sidecars,
        )

    def request(self, key: bytes) -> Erased:
        """Search, append the tombstone, make it durable, and only then accept."""
        found = self.trace(key, trusts_sidecars=True)
        if found.traces:
            erased = Erased(key, self.log.append((key, None)).base_offset, True)
            self.log.roll()
        else:
            erased = Erased(key, found.end_offset, False)
        self.erasures.append(erased)
        return erased

    def look(self, erased: Erased) -> None:
        """Take the next step of an erasure."""
        need = self._need(erased)
        guard = Guard.LEFT
        if need.next is Next.NOTHING:
            left = left_of(self.log.fs, self.log.log, erased.suspects, drops=True)
            ends = erased.state is ErasureState.ERASED or not erased.has_tombstone
            guard = Guard.KEPT if left else Guard.NOTHING if ends else Guard.TOMBSTONE
        elif erased.state is ErasureState.ERASED:
            assert self._first(erased) >= erased.offset, "nothing brings records back"
            guard = Guard.TOMBSTONE
        step = ERASURE_STATES.step(erased.state, Event.LOOK, guard)
        if step.action is Action.CERTIFY:
            self._check(erased)
            self.certified += 1
        if step.next_state is not erased.state:
            erased.state = step.next_state
            if erased.state is not ErasureState.HELD:
                erased.forget_proof()
        if need.next is Next.PASS:
            self.log.clean()
            for each in self.erasures:
                if each.proof is not None and self._first(each) < each.bound:
                    each.forget_proof()
        elif need.next is Next.PROVE:
            self._prove(erased)

    def _first(self, erased: Erased) -> int:
        key_hash = siphash128(HASH_KEY, erased.key)
        return OFFSET_MAX if erased.proof is None else erased.proof.first_offset(key_hash)

    def _need(self, erased: Erased) -> Need:
        if erased.proof is not None:
            return Need(Next.NOTHING if self._first(erased) >= erased.bound else Next.PASS)
        log = self.log.log
        facts = log_facts(log, obstacle=None, hold=NO_HOLD, now_ms=self.log.now_ms)
        if erased.state is not ErasureState.ERASED:
            return need_of_records(facts, erased.offset, has_tombstone=erased.has_tombstone)
        tombstone = tombstones_at(log, [erased.offset])[erased.offset]
        return need_of_tombstone(facts, erased.offset, tombstone, self.log.now_ms)

    def _prove(self, erased: Erased) -> None:
        view = self.log.log.cleaning_view(as_if_rolled=True)
        erased.suspects = suspects_beside(self.log.fs, DIRECTORY, view)
        erased.proof = self.trace(erased.key, erased.bound, trusts_sidecars=False)

    def _check(self, erased: Erased) -> None:
        """Check that a certificate is true, by all bytes of the files, also after a power cut."""
        for fs in (self.log.fs, self.log.fs.after_crash(Loss.EVERYTHING, Random(0))):
            left = [
                offset
                for key, offset in records_on_disk(fs)
                if key == erased.key and offset < erased.bound
            ]
            assert left == [], (erased, left)

    # ---------------------------------------------------------------- what happens to the log

    def play(self, steps: int) -> None:
        """Let random things happen."""
        happenings: list[tuple[int, Callable[[], None]]] = [
            (6, self.append),
            (2, self.transact),
            (2, self.log.roll),
            (1, self.background_pass),
            (1, self.wait),
            (1, self.pin),
            (1, self.unpin),
            (1, self.restart),
            (2, lambda: self.request_one()),
            (6, self.look_at_one),
        ]
        weights = [weight for weight, _ in happenings]
        for _ in range(steps):
            ((_, happen),) = self.random.choices(happenings, weights)
            happen()

    def append(self) -> None:
        pairs = [
            (self.random.choice(KEYS), None if self.random.random() < 0.2 else b"value" * 3)
            for _ in range(self.random.randint(1, 3))
        ]
        self.log.append(*pairs, codec=self.random.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD]))

    def transact(self) -> None:
        if self.producer is None:
            self.producers += 1
            self.producer = TransactionalProducer(self.log, self.producers)
            self.producer.send((self.random.choice(KEYS), b"in a transaction"))
        else:
            self.random.choice([self.producer.commit, self.producer.abort])()
            self.producer = None

    def background_pass(self) -> None:
        if self.log.assess().reason is not None:
            self.log.execute(self.log.plan(requested=False))

    def wait(self) -> None:
        self.log.now_ms += self.random.choice([1, self.log.log.config.delete_retention_ms])

    def pin(self) -> None:
        files = self.random.choice(self.log.log.segments).files
        files.pin()
        self.readers.append(files)

    def unpin(self) -> None:
        if self.readers:
            self.readers.pop(self.random.randrange(len(self.readers))).unpin()

    def restart(self) -> None:
        """Start again; readers are gone then, and so are proofs."""
        if self.random.random() < 0.5:
            while self.readers:
                self.unpin()
            self.log.reopen(is_clean=True)
        else:
            self.log.reopen(is_clean=False, loss=self.random.choice([*Loss]))
            self.readers.clear()
            self.log.make_durable()
        for erased in self.erasures:
            erased.forget_proof()

    def request_one(self) -> None:
        self.request(self.random.choice(KEYS))

    def look_at_one(self) -> None:
        if open_ones := [each for each in self.erasures if not each.state.is_final]:
            self.look(self.random.choice(open_ones))

    def finish(self) -> None:
        """Let go of everything that holds, and look until all erasures are complete."""
        if self.producer is not None:
            self.transact()
        while self.readers:
            self.unpin()
        self.log.append((b"last", b"value"))
        for _ in range(LOOKS_MAX):
            self.log.now_ms += self.log.log.config.delete_retention_ms
            for erased in self.erasures:
                if not erased.state.is_final:
                    self.look(erased)
        states = {each.state for each in self.erasures}
        assert states <= {ErasureState.COMPLETE}, self.erasures
