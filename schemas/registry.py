"""The schemas of a registry, each fetched once.

    found        kept up to a bound: what an id names never changes
    not found    remembered for FAILURE_SECONDS, then asked for again; with FAILURES_MAX of them no other
                 schema is asked for: values that begin with a zero byte by chance, such as numbers, name
                 any schema
    no registry  it is down or refuses us: no other schema is asked for during FAILURE_SECONDS

If several threads want a schema that is not here, one fetches it and the others wait for that.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Protocol, TypeAlias

from schemas.outcomes import REGISTRY_REFUSED, REGISTRY_UNREACHABLE, UNKNOWN_SCHEMA, Undecoded
from schemas.registry_answers import Unavailable
from schemas.schema import Schema

_log = logging.getLogger("schemas.registry")

SCHEMAS_MAX = 1_000
CHARS_MAX = 16 << 20
"""All schemas together; a larger one is kept alone."""
FAILURES_MAX = 100
FAILURE_SECONDS = 10.0
DOWN = (REGISTRY_UNREACHABLE, REGISTRY_REFUSED)
"""The codes of failures that every other schema would have as well."""

Found: TypeAlias = Schema | Undecoded


class FetchesSchemas(Protocol):
    """Asks a registry."""

    def schema(self, schema_id: int) -> Schema:
        """Returns a schema. Raises Unavailable."""


@dataclass(slots=True)
class _Failure:
    """A schema that is not there, until a time."""

    undecoded: Undecoded
    until: float


class Registry:
    """The schemas of one registry. Any thread may call."""

    __slots__ = (
        "_chars",
        "_client",
        "_down",
        "_failures",
        "_lock",
        "_monotonic",
        "_pending",
        "_schemas",
    )

    def __init__(
        self, client: FetchesSchemas, *, monotonic: Callable[[], float] = monotonic
    ) -> None:
        # Constant after construction.
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # State, under the lock. The one used last is at the end.
        self._schemas = OrderedDict[int, Schema]()
        self._chars = 0
        self._failures = OrderedDict[int, _Failure]()
        self._down: _Failure | None = None
        self._pending: dict[int, Future[Found]] = {}

    def known(self, schema_id: int) -> Found | None:
        """Returns a schema, or why it cannot be had, if that is known without the registry."""
        with self._lock:
            return self._known(schema_id)

    def schema(self, schema_id: int) -> Found:
        """Returns a schema, or why it cannot be had. Blocks while it asks the registry."""
        with self._lock:
            found = self._known(schema_id)
            if found is not None:
                return found
            pending = self._pending.get(schema_id)
            is_ours = pending is None
            if pending is None:
                pending = self._pending[schema_id] = Future()
        if is_ours:
            self._fetch(schema_id, pending)
        return pending.result()

    def _fetch(self, schema_id: int, pending: Future[Found]) -> None:
        """Ask the registry, remember the answer, and give it to all that wait."""
        try:
            found = self._asked(schema_id)
            with self._lock:
                self._remember(schema_id, found)
            pending.set_result(found)
        except BaseException as error:
            pending.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._pending[schema_id]

    def _asked(self, schema_id: int) -> Found:
        try:
            return self._client.schema(schema_id)
        except Unavailable as error:
            if error.code in DOWN:
                _log.warning("%s; values with a schema that is not here are not decoded", error)
            return Undecoded(schema_id=schema_id, code=error.code, reason=str(error))

    def _known(self, schema_id: int) -> Found | None:
        schema = self._schemas.get(schema_id)
        if schema is not None:
            self._schemas.move_to_end(schema_id)
            return schema
        now = self._monotonic()
        self._forget_failures(now)
        failure = self._failures.get(schema_id)
        if failure is not None:
            return failure.undecoded
        if len(self._failures) >= FAILURES_MAX:
            return _too_many(schema_id)
        if self._down is not None and now < self._down.until:
            last = self._down.undecoded
            return Undecoded(schema_id=schema_id, code=last.code, reason=last.reason)
        return None

    def _remember(self, schema_id: int, found: Found) -> None:
        if isinstance(found, Schema):
            self._schemas[schema_id] = found
            self._chars += found.chars
            while len(self._schemas) > SCHEMAS_MAX or (
                self._chars > CHARS_MAX and len(self._schemas) > 1
            ):
                self._chars -= self._schemas.popitem(last=False)[1].chars
            return
        failure = _Failure(found, self._monotonic() + FAILURE_SECONDS)
        if found.code in DOWN:
            self._down = failure
            return
        self._failures[schema_id] = failure

    def _forget_failures(self, now: float) -> None:
        """Forget those whose time is over: the first ones."""
        while self._failures and next(iter(self._failures.values())).until <= now:
            self._failures.popitem(last=False)


def _too_many(schema_id: int) -> Undecoded:
    return Undecoded(
        schema_id=schema_id,
        code=UNKNOWN_SCHEMA,
        reason=f"the registry lacks {FAILURES_MAX} schemas that values named last, so it is not asked"
        " for others now: some values may only look as if they named one",
    )
