"""Kafka's own cases for authorizers, as a table: its StandardAuthorizerTest and AuthorizerTest.

Each case has the name of Kafka's test, some ACLs, and decisions: who, from where, which operation on
which resource, allowed or not. `ELSEWHERE` says where the other tests of these classes have their
counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from server.config.config import BrokerConfig
from server.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from server.security.authorizer import Authorizer
from server.security.principal import Principal

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
CREATE, DELETE, ALTER, ALL = Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE, CLUSTER_ACTION = Operation.IDEMPOTENT_WRITE, Operation.CLUSTER_ACTION
LOCAL = "127.0.0.1"
YES, NO = True, False

Pattern = tuple[ResourceType, str, PatternType]
FOO: Pattern = (TOPIC, "foo-1234", LITERAL)
ANY_TOPIC: Pattern = (TOPIC, "*", LITERAL)
PREFIX: Pattern = (TOPIC, "foo", PREFIXED)


def acl(
    pattern: Pattern, principal: str, operation: Operation, permission: Permission, host: str = "*"
) -> Acl:
    kind, name, pattern_type = pattern
    return Acl(kind, name, pattern_type, principal, host, operation, permission)


@dataclass(frozen=True)
class Case:
    """ACLs, and the decisions that follow."""

    name: str
    acls: tuple[Acl, ...]
    decisions: tuple[tuple[str, str, Operation, ResourceType, str, bool], ...]
    super_users: tuple[str, ...] = ()
    open_to_all: bool = False


ALICE, BOB = "User:alice", "User:bob"
EVERYONE = "User:*"
FOO_ = (TOPIC, "foo_", PREFIXED)
BAR = (GROUP, "bar", LITERAL)
OF_FOO = (TOPIC, "foo-1234")


def implied(operation: Operation, wanted: Operation, permission: Permission, result: bool) -> Case:
    """One line of Kafka's `testFindResultImplication`; where it finds no ACL, the default denies."""
    own = acl((TOPIC, "foo_bar", LITERAL), BOB, operation, permission)
    others: tuple[Acl, ...] = (own,)
    if permission is DENY:
        others = (own, acl(FOO_, BOB, ALL, ALLOW))
    decisions = ((BOB, LOCAL, wanted, TOPIC, "foo_bar", result),)
    return Case("testFindResultImplication", others, decisions)


MANY = (
    acl((TOPIC, "green2", LITERAL), EVERYONE, READ, ALLOW),
    acl((TOPIC, "green", PREFIXED), BOB, READ, ALLOW),
    acl((TOPIC, "betamax4", LITERAL), BOB, READ, ALLOW),
    acl((TOPIC, "betamax", LITERAL), BOB, READ, ALLOW),
    acl((TOPIC, "beta", PREFIXED), EVERYONE, READ, ALLOW),
    acl((TOPIC, "alpha", PREFIXED), EVERYONE, READ, ALLOW),
    acl((TOPIC, "alp", PREFIXED), BOB, READ, DENY),
    acl((GROUP, "*", LITERAL), BOB, WRITE, ALLOW),
    acl((GROUP, "wheel", LITERAL), EVERYONE, WRITE, DENY),
)
OTHER_PREFIXES = (
    "a_other", "foo-77d8", "foo-5d1c", "foo-1f0a-zzz", "fooo-c2a9", "fo-90ab", "fop-7e11",
    "fon-3a5b", "fon-", "z_other",
)  # fmt: skip
HOST1, HOST2 = "192.168.1.1", "192.168.1.2"
KINDS_OF_OPERATIONS = tuple(
    each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY)
)


def inherited(operation: Operation, permission: Permission, others: tuple[Operation, ...]) -> Case:
    """One line of Kafka's `testAclInheritance`: what an ACL for an operation implies."""
    cluster = (CLUSTER, CLUSTER_NAME, LITERAL)
    acls: tuple[Acl, ...] = (acl(cluster, ALICE, operation, permission),)
    if permission is DENY:
        acls += (acl(cluster, ALICE, ALL, ALLOW),)
    decisions = tuple(
        (
            ALICE, "192.168.3.1", each, CLUSTER, CLUSTER_NAME,
            (each in (*others, operation)) is (permission is ALLOW),
        )
        for each in KINDS_OF_OPERATIONS
        if each is not ALL
    )  # fmt: skip
    return Case("testAclInheritance", acls, decisions)


CASES = [
    # StandardAuthorizerTest
    Case(
        "testAllowEveryoneIfNoAclFoundConfigEnabled",
        (acl((TOPIC, "topic1", LITERAL), ALICE, READ, ALLOW),),
        (
            (BOB, LOCAL, READ, TOPIC, "topic1", NO),
            (BOB, LOCAL, READ, TOPIC, "topic2", YES),
            (ALICE, LOCAL, WRITE, TOPIC, "topic1", NO),
        ),
        open_to_all=True,
    ),
    Case(
        "testAllowEveryoneIfNoAclFoundConfigDisabled",
        (acl((TOPIC, "topic1", LITERAL), ALICE, READ, ALLOW),),
        (
            (BOB, LOCAL, READ, TOPIC, "topic1", NO),
            (BOB, LOCAL, READ, TOPIC, "topic2", NO),
        ),
    ),
    *(implied(each, DESCRIBE, ALLOW, YES) for each in (DESCRIBE, READ, WRITE, DELETE, ALTER)),
    implied(CREATE, DESCRIBE, ALLOW, NO),
    *(implied(each, DESCRIBE, DENY, YES) for each in (READ, WRITE, DELETE, ALTER)),
    implied(DESCRIBE, DESCRIBE, DENY, NO),
    *(implied(e, DESCRIBE_CONFIGS, ALLOW, YES) for e in (DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    implied(ALTER_CONFIGS, DESCRIBE_CONFIGS, DENY, YES),
    implied(ALTER_CONFIGS, ALTER_CONFIGS, DENY, NO),
    Case(
        "testFindResultPrincipalMatching",
        (acl(FOO_, BOB, READ, ALLOW), acl(BAR, EVERYONE, READ, DENY), acl(BAR, ALICE, ALL, ALLOW)),
        (
            (BOB, LOCAL, READ, TOPIC, "foo_bar", YES),
            (ALICE, LOCAL, READ, TOPIC, "foo_bar", NO),
            (ALICE, LOCAL, READ, GROUP, "bar", NO),
        ),
    ),
    Case(
        "testSimpleAuthorizations",
        (
            acl(FOO_, BOB, READ, ALLOW),
            acl(FOO_, BOB, WRITE, ALLOW),
            acl(BAR, EVERYONE, DESCRIBE_CONFIGS, ALLOW),
            acl(BAR, EVERYONE, ALTER_CONFIGS, ALLOW),
        ),
        (
            (BOB, LOCAL, READ, TOPIC, "foo_", YES),
            ("User:fred", LOCAL, ALTER_CONFIGS, GROUP, "bar", YES),
        ),
    ),
    Case(
        "testDenyPrecedenceWithOperationAll",
        (
            acl((TOPIC, "foo", LITERAL), ALICE, ALL, DENY),
            acl((TOPIC, "foo", PREFIXED), ALICE, READ, ALLOW),
            acl((TOPIC, "foo", LITERAL), EVERYONE, ALL, DENY),
            acl((TOPIC, "foo", PREFIXED), EVERYONE, DESCRIBE, ALLOW),
        ),
        (
            (ALICE, LOCAL, WRITE, TOPIC, "foo", NO),
            (ALICE, LOCAL, READ, TOPIC, "foo", NO),
            (ALICE, LOCAL, DESCRIBE, TOPIC, "foo", NO),
            (ALICE, LOCAL, READ, TOPIC, "foobar", YES),
            (BOB, LOCAL, DESCRIBE, TOPIC, "foo", NO),
            (BOB, LOCAL, READ, TOPIC, "foo", NO),
            (BOB, LOCAL, WRITE, TOPIC, "foo", NO),
            (BOB, LOCAL, DESCRIBE, TOPIC, "foobaz", YES),
            (BOB, LOCAL, READ, TOPIC, "foobaz", NO),
        ),
    ),
    Case(
        "testTopicAclWithOperationAll",
        (
            acl((TOPIC, "foo", LITERAL), EVERYONE, ALL, ALLOW),
            acl((TOPIC, "bar", PREFIXED), ALICE, ALL, ALLOW),
            acl((TOPIC, "baz", LITERAL), BOB, ALL, ALLOW),
        ),
        (
            (ALICE, LOCAL, WRITE, TOPIC, "foo", YES),
            (ALICE, LOCAL, DESCRIBE_CONFIGS, TOPIC, "bar", YES),
            (ALICE, LOCAL, DESCRIBE, TOPIC, "baz", NO),
            (BOB, LOCAL, WRITE, TOPIC, "foo", YES),
            (BOB, LOCAL, READ, TOPIC, "bar", NO),
            (BOB, LOCAL, DESCRIBE, TOPIC, "baz", YES),
            ("User:malory", LOCAL, DESCRIBE, TOPIC, "foo", YES),
            ("User:malory", LOCAL, WRITE, TOPIC, "bar", NO),
            ("User:malory", LOCAL, READ, TOPIC, "baz", NO),
        ),
    ),
    Case(
        "testHostAddressAclValidation",
        (
            acl((TOPIC, "foo", LITERAL), ALICE, READ, DENY, HOST1),
            acl((TOPIC, "foo", LITERAL), ALICE, READ, ALLOW),
            acl((TOPIC, "bar", LITERAL), BOB, READ, ALLOW, HOST2),
            acl((TOPIC, "bar", LITERAL), EVERYONE, DESCRIBE, ALLOW, LOCAL),
        ),
        tuple(
            (who, host, operation, TOPIC, name, result)
            for who, host, results in (
                (ALICE, LOCAL, (YES, NO, YES)),
                (ALICE, HOST1, (NO, NO, NO)),
                (ALICE, HOST2, (YES, NO, NO)),
                (BOB, LOCAL, (NO, NO, YES)),
                (BOB, HOST1, (NO, NO, NO)),
                (BOB, HOST2, (NO, YES, YES)),
            )
            for (operation, name), result in zip(
                ((READ, "foo"), (READ, "bar"), (DESCRIBE, "bar")), results, strict=True
            )
        ),
    ),
    Case(
        "testAuthorizationWithManyAcls",
        MANY,
        (
            (BOB, LOCAL, READ, TOPIC, "green1", YES),
            (BOB, LOCAL, WRITE, GROUP, "wheel", NO),
            (BOB, LOCAL, READ, TOPIC, "alpha", NO),
            (BOB, LOCAL, WRITE, GROUP, "arbitrary", YES),
            (BOB, LOCAL, READ, TOPIC, "ala", NO),
        ),
    ),
    Case(
        "testPrefixAcls",
        (
            acl((TOPIC, "fooa", PREFIXED), ALICE, ALL, ALLOW),
            acl((TOPIC, "foobar", LITERAL), BOB, ALL, ALLOW),
            acl((TOPIC, "f", PREFIXED), BOB, ALL, ALLOW),
        ),
        (
            (BOB, LOCAL, WRITE, TOPIC, "foobarr", YES),
            (BOB, LOCAL, READ, TOPIC, "goobar", NO),
            (BOB, LOCAL, READ, TOPIC, "fooa", YES),
            (ALICE, LOCAL, DESCRIBE, TOPIC, "fooa", YES),
            (ALICE, LOCAL, WRITE, TOPIC, "bar", NO),
            (ALICE, LOCAL, READ, TOPIC, "baz", NO),
        ),
    ),
    # AuthorizerTest
    Case("testAuthorizeWithEmptyResourceName", (), ((ALICE, LOCAL, READ, GROUP, "", NO),)),
    Case(
        "testAuthorizeWithEmptyResourceName",
        (acl((GROUP, "*", LITERAL), EVERYONE, READ, ALLOW),),
        ((ALICE, LOCAL, READ, GROUP, "", YES),),
    ),
    Case(
        "testTopicAcl",
        (
            acl(FOO, ALICE, READ, ALLOW, HOST1),
            acl(FOO, ALICE, READ, ALLOW, HOST2),
            acl(FOO, ALICE, READ, DENY, HOST1),
            acl(FOO, ALICE, WRITE, ALLOW, HOST1),
            acl(FOO, ALICE, DESCRIBE, ALLOW),
            acl(FOO, "User:rob", READ, ALLOW),
            acl(FOO, "User:batman", WRITE, ALLOW),
        ),
        (
            (ALICE, HOST2, READ, *OF_FOO, YES),
            (ALICE, HOST1, READ, *OF_FOO, NO),
            (ALICE, HOST1, WRITE, *OF_FOO, YES),
            (ALICE, HOST2, WRITE, *OF_FOO, NO),
            (ALICE, HOST1, DESCRIBE, *OF_FOO, YES),
            (ALICE, HOST2, DESCRIBE, *OF_FOO, YES),
            (ALICE, HOST1, ALTER, *OF_FOO, NO),
            (ALICE, HOST2, ALTER, *OF_FOO, NO),
            ("User:rob", HOST1, DESCRIBE, *OF_FOO, YES),
            ("User:batman", HOST1, DESCRIBE, *OF_FOO, YES),
            ("User:rob", HOST1, READ, *OF_FOO, YES),
            ("User:batman", HOST1, WRITE, *OF_FOO, YES),
        ),
    ),
    Case(
        "testDenyTakesPrecedence",
        (acl(FOO, EVERYONE, ALL, ALLOW), acl(FOO, ALICE, ALL, DENY, "192.168.2.1")),
        ((ALICE, "192.168.2.1", READ, *OF_FOO, NO),),
    ),
    Case(
        "testAllowAllAccess",
        (acl(FOO, EVERYONE, ALL, ALLOW),),
        (("User:random", "192.0.4.4", READ, *OF_FOO, YES),),
    ),
    Case(
        "testSuperUserHasAccess",
        (acl(FOO, EVERYONE, ALL, DENY),),
        (
            ("User:superuser1", "192.0.4.4", READ, *OF_FOO, YES),
            ("User:superuser2", "192.0.4.4", READ, *OF_FOO, YES),
            ("User:superuser", "192.0.4.4", READ, *OF_FOO, NO),
        ),
        super_users=("User:superuser1", "User:superuser2"),
    ),
    Case("testWildCardAcls", (), ((ALICE, "192.168.3.1", READ, *OF_FOO, NO),)),
    Case(
        "testWildCardAcls",
        (
            acl(ANY_TOPIC, ALICE, READ, ALLOW, "192.168.3.1"),
            acl(FOO, ALICE, WRITE, ALLOW, "192.168.3.1"),
            acl(ANY_TOPIC, ALICE, WRITE, DENY, "192.168.3.1"),
        ),
        (
            (ALICE, "192.168.3.1", READ, *OF_FOO, YES),
            (ALICE, "192.168.3.1", WRITE, *OF_FOO, NO),
        ),
    ),
    Case("testNoAclFound", (), ((ALICE, LOCAL, READ, *OF_FOO, NO),)),
    Case("testNoAclFoundOverride", (), ((ALICE, LOCAL, READ, *OF_FOO, YES),), open_to_all=True),
    *(inherited(each, ALLOW, (DESCRIBE,)) for each in (READ, WRITE, DELETE, ALTER)),
    inherited(ALL, ALLOW, KINDS_OF_OPERATIONS),
    inherited(ALL, DENY, KINDS_OF_OPERATIONS),
    inherited(DESCRIBE, DENY, ()),
    inherited(ALTER_CONFIGS, ALLOW, (DESCRIBE_CONFIGS,)),
    inherited(DESCRIBE_CONFIGS, DENY, ()),
    Case(
        "testAccessAllowedIfAllowAclExistsOnWildcardResource",
        (acl(ANY_TOPIC, EVERYONE, READ, ALLOW),),
        ((ALICE, LOCAL, READ, *OF_FOO, YES),),
    ),
    Case(
        "testAccessAllowedIfAllowAclExistsOnPrefixedResource",
        (acl(PREFIX, EVERYONE, READ, ALLOW),),
        ((ALICE, LOCAL, READ, *OF_FOO, YES),),
    ),
    Case(
        "testAuthorizeWithPrefixedResource",
        (
            *(acl((TOPIC, each, PREFIXED), EVERYONE, READ, DENY) for each in OTHER_PREFIXES),
            acl((TOPIC, "a_other", LITERAL), EVERYONE, READ, DENY),
            acl((TOPIC, "z_other", LITERAL), EVERYONE, READ, DENY),
            acl(PREFIX, EVERYONE, READ, ALLOW),
        ),
        ((ALICE, LOCAL, READ, *OF_FOO, YES),),
    ),
    Case(
        "testSingleCharacterResourceAcls",
        (
            acl((TOPIC, "f", LITERAL), EVERYONE, READ, ALLOW),
            acl((TOPIC, "_", PREFIXED), EVERYONE, READ, ALLOW),
        ),
        (
            (ALICE, LOCAL, READ, TOPIC, "f", YES),
            (ALICE, LOCAL, READ, TOPIC, "foo", NO),
            (ALICE, LOCAL, READ, TOPIC, "_foo", YES),
            (ALICE, LOCAL, READ, TOPIC, "_", YES),
            (ALICE, LOCAL, READ, TOPIC, "foo_", NO),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{each.name}" for n, each in enumerate(CASES)])
def test_decisions_are_kafkas(case: Case) -> None:
    authorizer = Authorizer(super_users=case.super_users, allows_without_acl=case.open_to_all)
    authorizer.add(case.acls)
    for principal, host, operation, kind, name, expected in case.decisions:
        decision = authorizer.decide(Principal.parse(principal), host, operation, kind, name)
        assert decision.is_allowed is expected, (principal, host, operation, name, decision)


# Kafka's testAuthorizeByResourceType...: an operation on at least one resource of a type.

RESOURCES = {name: (TOPIC, name, LITERAL) for name in ("t1", "sb1", "sb2")}
ON_ANY_CASES = [
    ("NoAclFoundOverride", (), True, YES),
    ("NoAclFound", (), False, NO),
    (
        "IsolationUnrelatedDenyWontDominateAllow-principal",
        (acl(FOO, ALICE, READ, ALLOW), acl(FOO, BOB, READ, DENY)),
        False,
        YES,
    ),
    (
        "IsolationUnrelatedDenyWontDominateAllow-host",
        (acl(FOO, ALICE, READ, ALLOW), acl(FOO, ALICE, READ, DENY, HOST2)),
        False,
        YES,
    ),
    (
        "IsolationUnrelatedDenyWontDominateAllow-resource",
        (acl(FOO, ALICE, READ, ALLOW), acl(RESOURCES["sb2"], ALICE, READ, DENY)),
        False,
        YES,
    ),
    (
        "IsolationUnrelatedDenyWontDominateAllow-type",
        (acl(FOO, ALICE, READ, ALLOW), acl((GROUP, "*", LITERAL), ALICE, READ, DENY)),
        False,
        YES,
    ),
    (
        "IsolationUnrelatedDenyWontDominateAllow-operation",
        (acl(FOO, ALICE, READ, ALLOW), acl(ANY_TOPIC, ALICE, WRITE, DENY)),
        False,
        YES,
    ),
    ("DenyTakesPrecedence", (acl(FOO, ALICE, READ, ALLOW), acl(FOO, ALICE, READ, DENY)), False, NO),
    (
        "PrefixedResourceDenyDominate-shorter",
        (
            acl((TOPIC, "sb1", PREFIXED), ALICE, READ, ALLOW),
            acl((TOPIC, "sb", PREFIXED), ALICE, READ, DENY),
        ),
        False,
        NO,
    ),
    (
        "PrefixedResourceDenyDominate-longer",
        (
            acl((TOPIC, "sb1", PREFIXED), ALICE, READ, ALLOW),
            acl((TOPIC, "sb12", PREFIXED), ALICE, READ, DENY),
        ),
        False,
        YES,
    ),
    (
        "PrefixedResourceDenyDominate-literal",
        (acl(RESOURCES["sb1"], ALICE, READ, ALLOW), acl((TOPIC, "s", PREFIXED), ALICE, READ, DENY)),
        False,
        NO,
    ),
    (
        "WildcardResourceDenyDominate",
        (
            acl(ANY_TOPIC, ALICE, READ, ALLOW),
            acl(FOO, ALICE, READ, ALLOW),
            acl(ANY_TOPIC, ALICE, READ, DENY),
        ),
        False,
        NO,
    ),
    ("WithAllOperationAce-allow", (acl(FOO, ALICE, ALL, ALLOW),), False, YES),
    (
        "WithAllOperationAce-deny",
        (acl(FOO, ALICE, READ, ALLOW), acl(ANY_TOPIC, ALICE, ALL, DENY)),
        False,
        NO,
    ),
    (
        "WithAllHostAce",
        (acl(FOO, ALICE, READ, ALLOW, HOST1), acl(FOO, ALICE, READ, DENY)),
        False,
        NO,
    ),
    ("WithAllPrincipalAce", (acl(FOO, EVERYONE, READ, ALLOW),), False, YES),
    (
        "WithAllPrincipalAce-deny",
        (acl(FOO, ALICE, READ, ALLOW), acl(FOO, EVERYONE, READ, DENY)),
        False,
        NO,
    ),
    ("NoImplication", (acl(FOO, ALICE, WRITE, ALLOW),), False, NO),
]


@pytest.mark.parametrize(
    ("name", "acls", "open_to_all", "expected"), ON_ANY_CASES, ids=[c[0] for c in ON_ANY_CASES]
)
def test_an_operation_on_some_resource_is_allowed_as_in_kafka(
    name: str, acls: tuple[Acl, ...], open_to_all: bool, expected: bool
) -> None:
    authorizer = Authorizer(super_users=("User:root",), allows_without_acl=open_to_all)
    authorizer.add(acls)
    found = authorizer.decide_on_any(Principal.parse(ALICE), HOST1, READ, TOPIC)
    assert found.is_allowed is expected
    # testAuthorizeByResourceTypeSuperUserHasAccess
    assert authorizer.decide_on_any(Principal.parse("User:root"), HOST1, READ, TOPIC).is_allowed


def test_permission_on_some_resource_follows_each_added_and_removed_acl() -> None:
    """Kafka's testAuthorizeByResourceTypeMultipleAddAndRemove."""
    authorizer = Authorizer(super_users=(), allows_without_acl=False)
    deny, allow = acl(FOO, ALICE, READ, DENY), acl(FOO, ALICE, READ, ALLOW)

    def may() -> bool:
        return authorizer.decide_on_any(Principal.parse(ALICE), HOST1, READ, TOPIC).is_allowed

    for _ in range(10):
        assert not may()
        authorizer.add([allow])
        assert may()
        authorizer.add([deny])
        assert not may()
        authorizer.remove([deny])
        assert may()
        authorizer.remove([allow])


def test_the_rule_that_decided_is_named_as_in_kafkas_audit_log() -> None:
    """Kafka's testDenyAuditLogging and testAllowAuditLogging."""
    authorizer = Authorizer(super_users=("User:root",), allows_without_acl=False)
    authorizer.add(MANY)

    def rule(principal: str, name: str) -> str:
        return str(authorizer.decide(Principal.parse(principal), LOCAL, READ, TOPIC, name))

    assert rule(BOB, "alpha") == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=alp, patternType=PREFIXED,"
        " principal=User:bob, host=*, operation=READ, permissionType=DENY))"
    )
    assert rule(BOB, "green1") == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=green, patternType=PREFIXED,"
        " principal=User:bob, host=*, operation=READ, permissionType=ALLOW))"
    )
    assert rule("User:root", "alpha") == "SuperUser"
    assert rule(ALICE, "zeta") == "DefaultDeny"


def test_super_users_are_split_at_semicolons_and_may_contain_commas() -> None:
    """Kafka's testGetConfiguredSuperUsers and testAclConfigWithWhitespace."""
    texts = {
        "super.users": " User:bob ; User:CN=alice,O=Example;; ",
        "allow.everyone.if.no.acl.found": " true ",
    }
    config = BrokerConfig.from_texts(texts)
    assert config.resolved_super_users() == ("User:bob", "User:CN=alice,O=Example")
    assert config.allow_everyone_if_no_acl_found


ELSEWHERE = {
    "testGetConfiguredSuperUsers": "test_super_users_are_split_at_semicolons_and_may_contain_commas",
    "testAclConfigWithWhitespace": "test_super_users_are_split_at_semicolons_and_may_contain_commas",
    "testConfigure": "test_super_users_are_split_at_semicolons_and_may_contain_commas",
    "testGetDefaultResult": "testNoAclFound and testNoAclFoundOverride",
    "testListAcls": "test_acl_store.py",
    "testDenyAuditLogging": "test_the_rule_that_decided_is_named_as_in_kafkas_audit_log",
    "testAllowAuditLogging": "test_the_rule_that_decided_is_named_as_in_kafkas_audit_log",
    "testStartWithEarlyStartListeners": "absent: the ACLs are loaded before a listener opens",
    "testAuthorizationPriorToCompleteInitialLoad": "absent: as above",
    "testCompleteInitialLoad": "absent: as above",
    "testCompleteInitialLoadWithException": "test_acl_store.py: an unreadable ACL stops the start",
    "testAuthorizeThrowsOnNonLiteralResource": "absent: a decision takes a name, not a pattern",
    "testEmptyAclThrowsException": "test_acl_store.py",
    "testAllowAccessWithCustomPrincipal": "absent: principals have no classes here",
    "testSuperUserWithCustomPrincipalHasAccess": "absent: as above",
    "testAclManagementAPIs": "test_acl_store.py",
    "testLocalConcurrentModificationOfResourceAcls": "test_acl_store.py",
    "testDeleteAclOnWildcardResource": "test_acl_store.py",
    "testDeleteAllAclOnWildcardResource": "test_acl_store.py",
    "testDeleteAclOnPrefixedResource": "test_acl_store.py",
    "testDeleteAllAclOnPrefixedResource": "test_acl_store.py",
    "testAddAclsOnLiteralResource": "test_acl_store.py",
    "testAddAclsOnWildcardResource": "test_acl_store.py",
    "testAddAclsOnPrefixedResource": "test_acl_store.py",
    "testGetAclsPrincipal": "test_acl_store.py",
    "testAclsFilter": "test_acl_store.py",
    "testAuthorizeByResourceType (11 cases)": "ON_ANY_CASES and the tests after them",
}
"""Kafka's tests that are not in `CASES`, and where their counterpart is or why there is none."""
