"""Carries out `kompakt acls check`: decides as the broker does, from its ACLs and its configuration."""

from __future__ import annotations

import typer

from cli.acls.patterns import Given, operation_of, title
from cli.acls.show import acl_json, described
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.output import print_json
from cli.base.topic_facts import configs_of, refusal
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from server.config.rows import ResourceType as ConfigType
from server.security.acls import Acl, AclFilter, PatternType
from server.security.authorizer import Authorizer, Because, Decision
from server.security.principal import Principal

SUPER_USERS = "super.users"
OPEN_TO_ALL = "allow.everyone.if.no.acl.found"


async def check_permission(
    bootstrap: str, given: Given, principal: str, operation: str, *, host: str, as_json: bool
) -> int:
    """Print whether a principal may perform an operation, and the rule. Returns 1 if it may not."""
    kind, name = given.only_resource()
    wanted = operation_of(operation)
    try:
        who = Principal.parse(principal)
    except ValueError as error:
        raise CommandFailed(EXIT_USAGE, str(error)) from error
    matching = AclFilter(
        resource_type=kind, resource_name=name, pattern_type=PatternType.MATCH
    )  # fmt: skip
    async with connected(bootstrap) as client:
        acls = await described(client, [matching])
        authorizer = await _authorizer(client)
    authorizer.add(acls)
    decision = authorizer.decide(who, host, wanted, kind, name)
    if as_json:
        rule = decision.rule
        shown = rule.value if isinstance(rule, Because) else acl_json(rule)
        print_json({"is_allowed": decision.is_allowed, "rule": shown})
    else:
        kind_text = kind.name.lower().replace("_", " ")
        what = f"{who} may {{}}{title(wanted)} {kind_text} {name} from {host}"
        may = what.format("" if decision.is_allowed else "not ")
        typer.echo(f"{may}: {_reason(decision)}")
    return 0 if decision.is_allowed else EXIT_FAILED


def _reason(decision: Decision) -> str:
    match decision.rule:
        case Acl() as acl:
            pattern = acl.pattern_type.name.lower()
            verb = acl.permission.name.lower()
            return (
                f"the ACL of {acl.principal} from {acl.host} on {pattern} {acl.resource_name}"
                f" {verb}s {title(acl.operation)}"
            )
        case Because.SUPER_USER:
            return f"it is one of {SUPER_USERS}"
        case Because.DEFAULT_ALLOW:
            return f"no ACL is about this resource ({OPEN_TO_ALL}=true)"
        case Because.DEFAULT_DENY:
            return "no ACL allows it"


async def _authorizer(client: BrokerClient) -> Authorizer:
    """Returns an authorizer without ACLs that has the broker's configuration."""
    cluster = await client.call(
        DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse
    )
    names = [str(cluster.brokers[0].broker_id)]
    (result,) = await configs_of(client, ConfigType.BROKER, names, (SUPER_USERS, OPEN_TO_ALL))
    if result.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(result.error_code, result.error_message))
    values = {config.name: config.value or "" for config in result.configs}
    texts = (each.strip() for each in values.get(SUPER_USERS, "").split(";"))
    return Authorizer(
        super_users=[each for each in texts if each],
        allows_without_acl=values.get(OPEN_TO_ALL) == "true",
    )
