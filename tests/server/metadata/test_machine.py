"""The metadata machine knows the digest and the size of its rows, whatever was replayed or run."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.checkpoint_format import row_bytes
from replog.digest import set_digest
from server.metadata.machine import (
    REVISION_KEY,
    MetadataMachine,
    Operation,
    encode_command,
    fault_of_command,
)
from tests.harness.examples import examples

KEYS, LEASES = st.sampled_from(["a", "b", "c/d"]), st.integers(1, 3)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.text(max_size=3), st.just(0) | LEASES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("revoke"), LEASES),
)
KINDS = st.sampled_from(["apply", "run", "restore", "digest"])
STEPS = st.tuples(KINDS, st.lists(OPERATIONS.map(list)))


@settings(max_examples=examples(500))
@given(st.lists(STEPS, min_size=2))
def test_digest_and_size_are_those_of_the_rows(
    steps: list[tuple[str, list[Operation]]],
) -> None:
    machine = MetadataMachine()
    machine.run([["grant", lease, 1000 * lease] for lease in (1, 2, 3)])
    for index, (kind, operations) in enumerate(steps):
        if kind == "apply":
            command = encode_command(operations)
            assert fault_of_command(command) is None
            machine.apply(index, command)
        elif kind == "run":
            machine.run(operations)
        elif kind == "restore":
            rows = list(machine.snapshot())
            machine = MetadataMachine()
            machine.restore(iter(rows))
        else:
            machine.digest()

    rows = list(machine.snapshot())
    assert machine.digest() == set_digest(rows)
    counted = [row for row in rows if row[0][:1] != REVISION_KEY]
    assert machine.size_bytes() == sum(row_bytes(*row) for row in counted)


def test_what_a_broker_writes_has_no_fault() -> None:
    operations: list[Operation] = [
        ["grant", 1, 1000],
        ["put", "a", "ä", 1],
        ["delete", "a"],
        ["revoke", 1],
    ]

    assert fault_of_command(encode_command(operations)) is None
    assert fault_of_command(b'{"operations":[],"later":1}') is None
    assert fault_of_command(encode_command([["swap", "a", "b"]])) is not None
