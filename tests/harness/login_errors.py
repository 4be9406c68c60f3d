"""What the user of each client sees after each mistake: a wrong password, an expired certificate, ...

    python -m tests.harness.login_errors FILE    write what users see with an Apache Kafka

Apache Kafka's texts are in `tests/conformance/logins/errors.txt`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.client_access import Access, Accesses
from tests.harness.login_clients import (
    IN_PYTHON,
    WITHOUT_TOKENS,
    JavaLogins,
    Order,
    RoundTrip,
    program,
    stable,
)
from tests.harness.member_program import LOGIN_PROGRAMS
from tests.harness.secured_listeners import secured_kafka

PROCESSES = frozenset({"kcat", *LOGIN_PROGRAMS})
AT_ONCE = 4
WRONG = Order(topic="never", is_wrong=True)
Row = tuple[str, str]
"""A client and a mistake."""


def errors_of(name: str, client: RoundTrip, wrong: Mapping[str, Access]) -> dict[str, str]:
    """Returns what the user of a client sees, by mistake."""
    possible = {each: to for each, to in wrong.items() if has_way(name, to.mechanism)}
    # The texts of a process of its own cannot be mixed up.
    with ThreadPoolExecutor(AT_ONCE if name in PROCESSES else 1) as pool:
        texts = pool.map(lambda access: stable(client(access, WRONG)), possible.values())
        return dict(zip(possible, texts, strict=True))


def has_way(name: str, mechanism: str) -> bool:
    """Returns whether a client has a mechanism."""
    return mechanism != "OAUTHBEARER" or name not in WITHOUT_TOKENS


def read(text: str) -> dict[Row, str]:
    """Parse the texts from a file."""
    rows = (line.split(" | ", 2) for line in text.splitlines())
    return {(client, mistake): told for client, mistake, told in rows}


def _lines(wrong: Mapping[str, Access]) -> Iterator[str]:
    with JavaLogins() as java:
        programs = {name: program(name) for name in LOGIN_PROGRAMS}
        clients: dict[str, RoundTrip] = {**IN_PYTHON, "java": java, **programs}
        for name, client in clients.items():
            for mistake, text in errors_of(name, client, wrong).items():
                yield f"{name} | {mistake} | {text}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, secured_kafka(Path(scratch) / "kafka") as asked:
        Path(sys.argv[1]).write_text("".join(_lines(Accesses(asked).wrong())), "utf-8")
