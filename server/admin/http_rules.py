"""What each request to the HTTP endpoint checks before it does something: the one table.

    OPEN                everyone, without a login
    METRICS             everyone if http.metrics.public, else who may describe the cluster
    permissions         all of them

Reading about cleaning, snapshots, followers or links needs Describe on the cluster; changing them
Alter; exchanging a log's segments ClusterAction. What tells about keys needs Read on the topic too, and
what erases them Write. The last values of keys need Read on the topic alone, counts of its records
Describe. A route without an entry is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from server.security.acls import Operation, ResourceType

ROOT = "/v1/compaction"
PARTITION = ROOT + "/topics/{topic}/partitions/{partition}"
WHERES = (ROOT + "/topics/{topic}", PARTITION)
LEASE = PARTITION + "/lease"
LEDGER = ROOT + "/ledger"
ERASE = WHERES[0] + "/erase"
VERIFY_ERASURE = WHERES[0] + "/verify-erasure"
ERASURES = ROOT + "/erasures"
ERASURE = ERASURES + "/{erasure}"
FOLLOWERS = "/v1/metadata/followers"
LINKS = "/v1/links"
LINK = LINKS + "/{link}"
PROMOTE = "/v1/mirrors/{topic}/promote"
VERIFY = "/v1/mirrors/{topic}/verify"
KEY = "/v1/topics/{topic}/keys/{key}"
KEYS_BATCH = "/v1/topics/{topic}/keys:batch"
CHANGES = "/v1/topics/{topic}/changes"
SNAPSHOTS = "/v1/snapshots"
SNAPSHOT = SNAPSHOTS + "/{snapshot}"
TOPIC_RECORDS = "/v1/topics/{topic}/records"
PARTITION_RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
GROUP_LAG = "/v1/groups/{group}/lag"


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation that a client must be allowed: on the cluster, or on the topic of the path."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER


@dataclass(frozen=True, slots=True)
class HttpRule:
    """Who may use a route."""

    permissions: tuple[Permission, ...] = ()
    """All are needed; without one the route is open."""
    is_metrics: bool = False
    is_audited: bool = False
    """Whether the audit log gets a line when the request was carried out."""
    hides_topic: bool = False
    """Whether a client that lacks a permission gets the answer of a topic that does not exist."""


OPEN = HttpRule()
DESCRIBE = HttpRule((Permission(Operation.DESCRIBE),))
METRICS = HttpRule(DESCRIBE.permissions, is_metrics=True)
READ = HttpRule((*DESCRIBE.permissions, Permission(Operation.READ, ResourceType.TOPIC)))
GET_VALUES = HttpRule((Permission(Operation.READ, ResourceType.TOPIC),), hides_topic=True)
COUNT_RECORDS = HttpRule((Permission(Operation.DESCRIBE, ResourceType.TOPIC),), hides_topic=True)
ALTER = HttpRule((Permission(Operation.ALTER),), is_audited=True)
ERASING = HttpRule(
    (*ALTER.permissions, Permission(Operation.WRITE, ResourceType.TOPIC)), is_audited=True
)
EXCHANGE = HttpRule((Permission(Operation.CLUSTER_ACTION),), is_audited=True)
RENEW = HttpRule(EXCHANGE.permissions)

_OF_A_TOPIC: Mapping[tuple[str, str], HttpRule] = {
    ("POST", "/now"): ALTER,
    ("POST", "/cancel"): ALTER,
    ("POST", "/plan"): DESCRIBE,
    ("POST", "/preview"): DESCRIBE,
    ("POST", "/find-key"): READ,
    ("POST", "/digest"): READ,
    ("POST", "/keys"): READ,
    ("GET", "/keys/{job}"): READ,
    ("GET", "/tombstones"): DESCRIBE,
    ("GET", "/explain"): DESCRIBE,
    ("GET", "/undo"): DESCRIBE,
    ("POST", "/undo"): ALTER,
    ("POST", "/pause"): ALTER,
    ("POST", "/resume"): ALTER,
}
HTTP_RULES: Mapping[tuple[str, str], HttpRule] = {
    ("GET", "/"): OPEN,
    ("GET", "/metrics"): METRICS,
    ("GET", "/health/live"): OPEN,
    ("GET", "/health/ready"): OPEN,
    ("GET", "/v1/status/ready"): OPEN,
    ("GET", ROOT): DESCRIBE,
    ("GET", ROOT + "/history"): DESCRIBE,
    ("GET", LEDGER): DESCRIBE,
    ("GET", LEDGER + "/head"): DESCRIBE,
    ("POST", LEDGER + "/verify"): DESCRIBE,
    ("GET", LEDGER + "/verify/{job}"): DESCRIBE,
    ("DELETE", LEDGER + "/verify/{job}"): ALTER,
    ("POST", ROOT + "/pause"): ALTER,
    ("POST", ROOT + "/resume"): ALTER,
    ("GET", ROOT + "/jobs/{job}"): DESCRIBE,
    ("DELETE", ROOT + "/jobs/{job}"): ALTER,
    **{
        (method, where + action): rule
        for where in WHERES
        for (method, action), rule in _OF_A_TOPIC.items()
    },
    ("POST", ERASE): ERASING,
    ("POST", VERIFY_ERASURE): READ,
    ("GET", ERASURES): DESCRIBE,
    ("GET", ERASURE): DESCRIBE,
    ("DELETE", ERASURE): ALTER,
    ("GET", ERASURE + "/certificate"): DESCRIBE,
    ("GET", FOLLOWERS): DESCRIBE,
    ("GET", LINKS): DESCRIBE,
    ("GET", LINK): DESCRIBE,
    ("PUT", LINK): ALTER,
    ("PATCH", LINK): ALTER,
    ("DELETE", LINK): ALTER,
    ("POST", LINK + "/pause"): ALTER,
    ("POST", LINK + "/resume"): ALTER,
    ("POST", LINK + "/resync"): ALTER,
    ("POST", PROMOTE): ALTER,
    ("POST", VERIFY): READ,
    ("GET", VERIFY + "/{job}"): READ,
    ("DELETE", VERIFY + "/{job}"): READ,
    ("GET", KEY): GET_VALUES,
    ("POST", KEYS_BATCH): GET_VALUES,
    ("GET", CHANGES): GET_VALUES,
    ("GET", SNAPSHOTS): DESCRIBE,
    ("POST", SNAPSHOTS): ALTER,
    ("GET", SNAPSHOT): DESCRIBE,
    ("DELETE", SNAPSHOT): ALTER,
    ("GET", TOPIC_RECORDS): COUNT_RECORDS,
    ("GET", PARTITION_RECORDS): COUNT_RECORDS,
    ("GET", GROUP_LAG): DESCRIBE,
    ("POST", LEASE): EXCHANGE,
    ("POST", LEASE + "/{lease}/renew"): RENEW,
    ("POST", LEASE + "/{lease}/commit"): EXCHANGE,
    ("DELETE", LEASE + "/{lease}"): EXCHANGE,
}
"""By method and path. HEAD needs what GET needs."""


def rule_of(method: str, path: str) -> HttpRule | None:
    """Returns the rule of a route; None if there is none."""
    return HTTP_RULES.get(("GET" if method == "HEAD" else method, path))
