"""JSON answers that may be large: encoded in slices of the loop (`server/runtime/sliced_json.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from server.runtime.sliced_json import encode
from server.runtime.turns import Pace, Turns


class LargeAnswers:
    """Makes the answers of some routes, which share their turns of the loop."""

    def __init__(self) -> None:
        self._turns = Turns()

    async def of(
        self, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Returns a value as an answer. Nothing in it may change meanwhile, except what rows show."""
        text = await encode(value, Pace(self._turns))
        return web.json_response(text=text, status=status, headers=headers)
