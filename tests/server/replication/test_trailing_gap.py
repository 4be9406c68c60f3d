"""A trailing gap: records that the source's cleaner removed behind the last batch that is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Epoch, Offset
from server.replication.gap_epoch import epoch_of_gap
from server.replication.state_table import MirrorState
from storage.state.leader_epochs import EpochEnd, LeaderEpochs
from tests.harness.mirror_world import MirrorWorld


async def settled(world: MirrorWorld) -> None:
    await world.settle()
    assert world.mirror.state is MirrorState.COPYING
    assert world.copy.log.log_end_offset == world.source.log.high_watermark


async def with_cleaned_tail(elections: int) -> MirrorWorld:
    """Returns a world whose source has no batch of its last epochs left, as after a Kafka cleaner that
    has removed their tombstones. The mirror has everything before that."""
    world = MirrorWorld(seed=0)
    world.source.append((b"a", b"1"), (b"b", b"1"))
    world._remember(0)
    await settled(world)
    log = world.source.log
    for _ in range(elections):
        log.lead_above(log.leader_epoch)
        log.appender.advance_end(Offset(log.log_end_offset + 2))
    log.appender.advance_end(Offset(log.log_end_offset + 1))
    world.source.make_durable()
    return world


@pytest.mark.parametrize("elections", [0, 1, 3])
async def test_ends_are_equal_if_the_removed_records_had_later_epochs(
    elections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirrorWorld, "_write", lambda _: None)
    world = await with_cleaned_tail(elections)
    for _ in range(20):
        await world._fetch(is_lost=False)
    assert world.mirror.cut_records == 0, "a gap is no divergence"
    assert world.copy.log.log_end_offset == world.source.log.log_end_offset
    assert world.copy.log.leader_epoch > world.copy.log.epochs.latest

    world.source.append((b"c", b"2"))
    world._remember(0)
    await settled(world)
    assert not world.diverges()
    assert world.mirror.cut_records == 0


async def test_a_mirror_does_not_guess_the_epoch_of_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MirrorWorld, "_write", lambda _: None)
    world = await with_cleaned_tail(elections=1)
    world.known_epoch = Epoch(-1)
    for _ in range(20):
        await world._fetch(is_lost=False)
    assert world.copy.log.log_end_offset == 2
    world.known_epoch = None
    await settled(world)


STEPS = st.integers(1, 4) | st.integers(1, 1 << 24)
Starts = st.lists(st.tuples(STEPS, st.integers(0, 5)), min_size=1, max_size=6)
"""Growing epochs as (step from the epoch before, offsets in it)."""


@given(starts=Starts, data=st.data())
async def test_the_epoch_of_a_gap_is_the_one_that_the_source_had_before_its_end(
    starts: list[tuple[int, int]], data: st.DataObject
) -> None:
    epochs, epoch, end = LeaderEpochs(), 0, 0
    for step, count in starts:
        epoch += step
        epochs.assign(Epoch(epoch), Offset(end))
        end += count
    wanted = data.draw(st.integers(1, max(1, end)))
    known = [each for each, _ in epochs.entries]
    last = data.draw(st.sampled_from([Epoch(-1), *known]))
    leader = data.draw(st.sampled_from([epochs.latest, Epoch(epochs.latest + 1), Epoch(-1)]))

    asked_epochs = list[Epoch]()

    async def ask(asked: Epoch) -> EpochEnd:
        asked_epochs.append(asked)
        return epochs.end_offset(asked, Offset(end))

    found = await epoch_of_gap(ask, last_epoch=last, leader_epoch=leader, end=Offset(wanted))
    if found is None:
        assert leader != epochs.latest or wanted > end
    else:
        assert found == max(epochs.epoch_at(Offset(wanted - 1)), last)
    assert len(asked_epochs) <= 2 + epoch.bit_length() + 1
