"""The topic names to which a member of a consumer group subscribes, as many as a request carries."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire.encoded_strings import encode_strings_in_steps
from protocol.wire.errors import EncodeError
from server.runtime.turns import Pace

NAMES_ENCODED_AT_ONCE = 1_000


async def distinct_names(names: Sequence[str], pace: Pace) -> tuple[dict[str, None], int]:
    """Returns the distinct names of the subscribed topics, in their order, and their total length."""
    distinct: dict[str, None] = {}
    size = 0
    async for name in pace.paced(names):
        if name not in distinct:
            distinct[name] = None
            size += len(name)
    return distinct, size


async def set_of_names(names: dict[str, None], pace: Pace) -> frozenset[str]:
    """Returns the names as a set; if they are many, with the encoding for the member's record."""
    if len(names) <= NAMES_ENCODED_AT_ONCE:
        return frozenset(names)
    try:
        return await pace.run(encode_strings_in_steps(names))
    except EncodeError:
        # A record cannot carry a name of this length: the write fails, and the member is refused.
        return frozenset(names)
