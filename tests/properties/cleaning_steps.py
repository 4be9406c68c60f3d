"""The steps of a compacted log's history, and how they are made up."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from protocol.records.control_record import ControlType
from protocol.records.record_batch import Codec
from tests.harness.compacted_log import CONFIG
from tests.harness.log_builder import KeyValue
from tests.harness.memory_fs import Loss

RETENTION_MS = CONFIG.delete_retention_ms
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d"])
VALUES = st.none() | st.sampled_from([b"", b"1", b"v" * 200])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)


@dataclass(frozen=True, slots=True)
class Append:
    """The next batch of a producer: -1 is a plain one, from 10 on they are transactional."""

    pairs: list[KeyValue]
    producer: int = -1
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The marker of a producer's transaction, open or not."""

    producer: int
    kind: ControlType


@dataclass(frozen=True, slots=True)
class SendAgain:
    """A producer's last batch comes a second time."""

    producer: int


@dataclass(frozen=True, slots=True)
class Roll:
    """A new active segment."""


@dataclass(frozen=True, slots=True)
class Clean:
    """A pass, after so much time, with so small a map, that is stopped at one of its looks or not."""

    after_ms: int = 0
    map_slots: int = 1000
    stopped_after: int | None = None


@dataclass(frozen=True, slots=True)
class CrashInPass:
    """A pass, a power cut behind one of its operations, and a start."""

    operations: int
    loss: Loss
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A stop or a power cut between passes, and a start."""

    is_clean: bool = True
    has_sound_snapshots: bool = True
    """Else only what the batches tell is left of the producers."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """So many of the youngest offsets go, and what shares a batch with them."""

    offsets_count: int


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """A topic stops being compacted, and starts again: no pass planned before may continue."""


Step = (
    Append | EndTransaction | SendAgain | Roll | Clean | CrashInPass | Restart | Truncate
    | ChangePolicy
)  # fmt: skip

APPENDS = st.builds(Append, PAIRS, st.sampled_from([-1, -1, 1, 2, 10, 11]), st.sampled_from(Codec))
ENDS = st.builds(
    EndTransaction,
    st.sampled_from([10, 11]),
    st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
)
CLEANS = st.builds(
    Clean,
    st.sampled_from([0, 1, RETENTION_MS]),
    st.sampled_from([16, 1000]),
    st.none() | st.integers(0, 30),
)
STEPS = st.one_of(
    APPENDS,
    APPENDS,
    ENDS,
    CLEANS,
    st.just(Roll()),
    st.builds(SendAgain, st.sampled_from([1, 2, 10, 11])),
    st.builds(CrashInPass, st.integers(1, 40), st.sampled_from(Loss), st.integers(0, 1 << 16)),
    st.builds(Restart, st.booleans(), st.booleans()),
    st.builds(Truncate, st.integers(1, 6)),
    st.just(ChangePolicy()),
)
