"""The leader epoch of a trailing gap: of records that the source's cleaner has removed behind its last
batch.

    source   batch (epoch 4)  | removed, epoch 4 | removed, epoch 5 |     its log ends here, in epoch 6
    mirror   batch (epoch 4)  | gap                                 |     of epoch 5

No batch is left that says it, so the source is asked where its epochs end. With an earlier epoch the
mirror would seem to diverge from the source. With a later one, the epochs of its batches would fall if
the source appends records of the right one, for example because its high watermark is not its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from protocol.wire.numbers import Epoch, Offset
from storage.state.leader_epochs import EpochEnd

AskEpochEnd = Callable[[Epoch], Awaitable[EpochEnd]]
"""Returns the source's largest epoch up to one, and where it ends; (-1, -1) if it knows none
(OffsetsForLeaderEpoch)."""


async def epoch_of_gap(
    ask: AskEpochEnd,
    *,
    last_epoch: Epoch,
    leader_epoch: Epoch,
    end: Offset,
) -> Epoch | None:
    """Returns the source's epoch just before the offset `end`, at least `last_epoch`.

    Args:
        ask: asks the source.
        last_epoch: of the mirror's last batch; -1 if it has none.
        leader_epoch: in which the source's broker leads, as far as the link knows.

    Returns:
        None if the source does not know the epoch, for example because the link knows an older one.
    """
    if last_epoch >= 0:
        _, last_end = await ask(last_epoch)
        if last_end >= end:
            return last_epoch
    epoch, epoch_end = await ask(leader_epoch)
    if epoch < 0 or epoch_end < end:
        return None
    # Ends grow with epochs: those up to `below` end before `end`, `epoch` does not.
    below = last_epoch
    while epoch - below > 1:
        middle = Epoch((below + epoch) // 2)
        found, found_end = await ask(middle)
        if found >= 0 and found_end >= end:
            epoch = min(found, middle)
        else:
            below = middle
    return max(epoch, last_epoch)
