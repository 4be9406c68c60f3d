"""Which entries of the metadata stores a snapshot has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from server.metadata.store import Entry
from server.topics.keys import DELETED, PLACED, PUT_ASIDE, TOPICS, UNSETTLED

_OF_TOPIC_IDS = (PLACED, UNSETTLED, DELETED, PUT_ASIDE)


def entries_about(topics: Mapping[str, str], entries: Iterable[Entry]) -> dict[str, str]:
    """Returns the entries of a store without those of other topics, and without those under leases.

    A topic that was created after the logs of a snapshot were chosen, for example, is another one.

    Args:
        topics: the names of the snapshot's topics by their ids, in 22 characters of base64url.
    """
    names = set(topics.values())
    return {
        each.key: each.value
        for each in entries
        if not each.lease and _is_about(topics, names, each.key)
    }


def _is_about(topics: Mapping[str, str], names: set[str], key: str) -> bool:
    if key.startswith(TOPICS):
        return key.removeprefix(TOPICS) in names
    for prefix in _OF_TOPIC_IDS:
        if key.startswith(prefix):
            return key.removeprefix(prefix).partition("/")[0] in topics
    return True
