"""Kafka's error codes: a number for clients, each with a message for people.

Source: https://kafka.apache.org/protocol#protocol_error_codes, Errors.java.
"""

from __future__ import annotations

import enum
from typing import Self


class ErrorCode(enum.IntEnum):
    """An error code of a response. On the wire an int16: values never change."""

    message: str
    """Default text for `error_message` fields, which clients print."""
    retriable: bool
    """Whether clients retry the request by themselves."""

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    @classmethod
    def from_wire(cls, code: int) -> Self:
        """Returns the error code of a peer; UNKNOWN_SERVER_ERROR if this release does not know it."""
        try:
            return cls(code)
        except ValueError:
            return cls(-1)

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in a way it did not expect."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside of what the log holds."
    CORRUPT_MESSAGE = 2, "The record batch is damaged: its checksum or its size is wrong.", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not host the topic or partition.", True
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", True
    NOT_LEADER_OR_FOLLOWER = 6, "This broker is neither leader nor follower of the partition.", True
    REQUEST_TIMED_OUT = 7, "The request timed out.", True
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available.", True
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of a committed offset is too large."
    NETWORK_EXCEPTION = 13, "The connection broke before a response came.", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading.", True
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", True
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", True
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is invalid or reserved."
    RECORD_LIST_TOO_LARGE = 18, "The record batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas in sync; nothing was written.", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Too few replicas in sync; the leader wrote.", True
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with its group."
    INVALID_GROUP_ID = 24, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of the broker's range."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: rejoin it."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is too far from the broker's time."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not enabled."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is invalid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is invalid."
    INVALID_CONFIG = 40, "The configuration is invalid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", True
    INVALID_REQUEST = 42, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format does not support the request."
    POLICY_VIOLATION = 44, "The request violates the broker's policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A sequence number is not the next one of its producer."
    DUPLICATE_SEQUENCE_NUMBER = 46, "A sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is an older one."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on the transaction is not finished.", True
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator exists."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Authorization is not enabled on this broker."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The partition's log directory failed.", True
    LOG_DIR_NOT_FOUND = 57, "The log directory is not one of this broker's."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker holds no state for the producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of partitions is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "This connection may not ask for delegation tokens."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session does not exist.", True
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the next one.", True
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the requested name.", True
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the broker's.", True
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's.", True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression type is not supported."
    STALE_BROKER_EPOCH = 77, "The broker's epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, "The high watermark has not caught up after an election.", True
    MEMBER_ID_REQUIRED = 79, "Join again with the member id that was assigned."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", True
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member took over the group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may become leader.", True
    ELECTION_NOT_NEEDED = 84, "The partition needs no election.", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "A record breaks a rule of its topic."
    UNSTABLE_OFFSET_COMMIT = 88, "An open transaction holds uncommitted offsets.", True
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is exceeded.", True
    PRODUCER_FENCED = 90, "A newer producer uses the transactional id."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The sender or the receiver is not one of the voters."
    INVALID_UPDATE_VERSION = 95, "The version of the update is invalid."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position is outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker hosts no topic of this id.", True
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic's id is another one than the request's.", True
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is another one than this broker's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topics with and without ids.", True
    INELIGIBLE_REPLICA = 107, "The new set of in-sync replicas has one that may not be in it."
    NEW_LEADER_ELECTED = 108, "The change was made, and the leader is another one now."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is fenced: give up all partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds the group instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is stale: heartbeat first."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to an endpoint of another type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The type of the endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is unknown."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is invalid or out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The controller refused the registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed and can be aborted."
    INVALID_RECORD_STATE = 121, "The state of the record does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session does not exist.", True
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not the next one.", True
    FENCED_STATE_EPOCH = 124, "The epoch of the share group's state does not match."
    INVALID_VOTER_KEY = 125, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is invalid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is out of date: bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is invalid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the topology is invalid."
    STREAMS_TOPOLOGY_FENCED = 132, "The epoch of the topology is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "No more share sessions can be opened.", True
