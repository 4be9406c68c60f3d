"""Which ACLs go along with mirrors, and which of them a link removes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.replication.acl_changes import acl_changes, concerned_by
from server.security.acls import Acl, Operation, PatternType, Permission, ResourceType

TOPICS = ("a", "ab", "abc", "b")


def acl(
    name: str,
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
    operation: Operation = Operation.READ,
) -> Acl:
    return Acl(kind, name, pattern, "User:u", "*", operation, Permission.ALLOW)


ACLS = st.builds(
    acl,
    st.sampled_from(("a", "ab", "abc", "b", "c", "*")),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP)),
    st.sampled_from((Operation.READ, Operation.WRITE)),
)
SETS = st.frozensets(ACLS, max_size=8)


@given(one=ACLS, topics=st.frozensets(st.sampled_from(TOPICS)))
def test_an_acl_concerns_its_topic_or_those_with_its_prefix(
    one: Acl, topics: frozenset[str]
) -> None:
    name = one.resource_name
    is_prefix = one.pattern_type is PatternType.PREFIXED
    names = [each for each in topics if each == name or (is_prefix and each.startswith(name))]
    expected = one.resource_type is ResourceType.TOPIC and bool(names)
    assert concerned_by(topics)(one) is expected


Events = st.lists(
    st.one_of(
        st.tuples(st.just("source"), SETS),
        st.tuples(st.just("operator"), SETS),
        st.tuples(st.just("topics"), st.frozensets(st.sampled_from(TOPICS))),
        st.tuples(st.just("crash"), st.integers(0, 3)),
        st.tuples(st.just("sync"), st.none()),
    ),
    max_size=20,
)


@given(events=Events)
def test_a_link_removes_only_what_it_has_created_also_after_crashes(
    events: list[tuple[str, object]],
) -> None:
    """An ACL that an operator creates is never removed, unless the link had created it before."""
    source, operators, here = frozenset[Acl](), frozenset[Acl](), frozenset[Acl]()
    topics, owned, created = frozenset(TOPICS), frozenset[Acl](), frozenset[Acl]()
    for event, given_now in [*events, ("sync", None)]:
        if event == "source":
            source = given_now  # type: ignore[assignment]
        elif event == "operator":
            operators |= given_now - created - here  # type: ignore[operator]
            here |= operators
        elif event == "topics":
            topics = given_now  # type: ignore[assignment]
        else:
            steps = 4 if event == "sync" else given_now
            changes = acl_changes(source, topics, owned=owned, here=here)
            assert isinstance(steps, int)
            if steps > 0:
                owned |= changes.owned
                created |= changes.create
            here |= changes.create if steps > 1 else frozenset()
            here -= changes.delete if steps > 2 else frozenset()
            owned = changes.owned if steps > 3 else owned
        assert operators <= here
    wanted = frozenset(filter(concerned_by(topics), source))
    assert wanted <= here, "all of the source's are here"
    assert owned <= wanted
    again = acl_changes(source, topics, owned=owned, here=here)
    assert not again.create
    assert not again.delete


def test_what_a_promoted_topic_has_stays_and_is_no_longer_the_links() -> None:
    mine = acl("a")
    after = acl_changes([mine], (), owned=frozenset({mine}), here={mine})
    assert (after.create, after.delete, after.owned) == (frozenset(), frozenset(), frozenset())
