"""The index decides as a model that looks at every ACL does, after any additions and removals."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from server.security.acl_index import spellings
from server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from server.security.authorizer import Authorizer
from server.security.principal import Principal
from tests.harness import naive_authorizer

NAMES = ("", "a", "ab", "abc", "abx", "b", "*", "*a", "hardcode", "hard")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice")
HOSTS = ("10.0.0.1", "10.0.0.2")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS, Operation.CREATE,
)  # fmt: skip

ACLS = st.builds(
    Acl,
    st.sampled_from(KINDS),
    st.sampled_from([name for name in NAMES if name]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([*OPERATIONS, Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


@given(
    history=st.lists(st.lists(ACLS, max_size=6), max_size=6),
    open_to_all=st.booleans(),
    principal=st.sampled_from(["User:alice", "User:carol", "Group:alice"]),
    host=st.sampled_from(HOSTS),
)
def test_every_decision_is_the_one_of_a_model_that_looks_at_every_acl(
    history: list[list[Acl]], open_to_all: bool, principal: str, host: str
) -> None:
    authorizer = Authorizer(super_users=(), allows_without_acl=open_to_all)
    acls: set[Acl] = set()
    client = Principal.parse(principal)
    for batch in history:
        # What exists already is removed: so each batch adds and removes.
        removed, added = acls & set(batch), set(batch) - acls
        authorizer.remove(removed)
        authorizer.add(added)
        acls ^= set(batch)
        for kind, operation in itertools.product(KINDS, OPERATIONS):
            for name in NAMES:
                expected = naive_authorizer.allows(
                    acls, principal, host, operation, kind, name, open_to_all=open_to_all
                )
                decision = authorizer.decide(client, host, operation, kind, name)
                assert decision.is_allowed is expected, (kind, operation, name, decision)
                assert not isinstance(decision.rule, Acl) or decision.rule in acls
            expected = naive_authorizer.allows_on_any(
                acls, principal, host, operation, kind, open_to_all=open_to_all
            )
            found = authorizer.decide_on_any(client, host, operation, kind)
            assert found.is_allowed is expected, (kind, operation, found)
            assert not isinstance(found.rule, Acl) or found.rule in acls


def test_an_address_has_the_spellings_of_python_and_of_java() -> None:
    assert spellings("10.0.0.1") == ("*", "10.0.0.1")
    assert spellings("::1") == ("*", "::1", "0:0:0:0:0:0:0:1")
    assert spellings("2001:db8::a") == ("*", "2001:db8::a", "2001:db8:0:0:0:0:0:a")
    assert spellings("fe80::1%eth0") == ("*", "fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0")
    assert spellings("::ffff:10.0.0.1") == ("*", "10.0.0.1")
    assert spellings("") == ("*", "")
