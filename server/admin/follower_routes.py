"""The HTTP route that lists who follows the metadata's log and the coordinators' topics.

GET /v1/metadata/followers    200 {"cluster_id", "term", "start", "end", "digest", "downloads",
                              "followers": [{"id", "host", "end", "lag", "seen_seconds_ago", "installs",
                              "download": {"position", "size"} or null, "coordinators": [{"name",
                              "partitions", "lag", "seen_seconds_ago", "checkpoints"}, ...]}, ...]}

`digest` is that of the state at `end`: a standby that is at the same end has the same. It changes
nothing, and waits for no disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from server.admin.compaction_answers import refusals_as_json
from server.admin.http_rules import FOLLOWERS
from server.admin.refusals import serving
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.followers import EndOf, Followers


@dataclass(frozen=True, slots=True)
class Leading:
    """A cluster, and the store whose log is followed."""

    cluster_id: str
    store: EmbeddedMetadataStore


class FollowerRoutes:
    """Answers the request above."""

    def __init__(
        self, leading: Callable[[], Leading | str], followers: Followers, end_of: EndOf
    ) -> None:
        """
        Args:
            leading: returns a sentence while the broker has not opened its store.
            end_of: returns where a coordinator's partition ends.
        """
        self._leading = leading
        self._followers = followers
        self._end_of = end_of

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [web.get(FOLLOWERS, refusals_as_json(self._list))]

    async def _list(self, _: web.Request) -> web.StreamResponse:
        leading = serving(self._leading())
        store = leading.store
        digest, end = store.digest
        return web.json_response(
            {
                "cluster_id": leading.cluster_id,
                "term": store.term,
                "start": store.log_start,
                "end": end,
                "digest": f"{digest:032x}",
                "downloads": self._followers.downloading_count,
                "followers": self._followers.as_json(end, self._end_of),
            }
        )
