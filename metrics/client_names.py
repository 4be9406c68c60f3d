"""Metrics of what clients do: records, requests, connections, logins, quotas."""

from __future__ import annotations

from metrics.metric import Metric

# What clients send and read.
RECORDS_IN = Metric.counter(
    "kafka_server_brokertopicmetrics_messagesin_total", "Records appended.", "topic"
)
BYTES_IN = Metric.counter(
    "kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches appended.", "topic"
)
BYTES_OUT = Metric.counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches sent.", "topic"
)
RECORDS_REFUSED = Metric.counter(
    "kompakt_records_refused_total", "Records refused, by error code.", "topic", "reason"
)
SEGMENTS_DELETED = Metric.counter(
    "kompakt_segments_deleted_total",
    "Segments deleted because of their age, a log's size or its start.",
    "topic",
    "reason",
)
BYTES_DELETED = Metric.counter(
    "kompakt_segments_deleted_bytes_total", "Bytes of deleted segments.", "topic", "reason"
)

# Requests and connections.
REQUEST_SECONDS = Metric.histogram(
    "kompakt_request_seconds", "Time from a request's frame to its response.", "api"
)
CONNECTIONS = Metric.gauge("kompakt_connections", "Open connections.", "listener")
CONNECTIONS_OPENED = Metric.counter(
    "kompakt_connections_opened_total", "Connections accepted.", "listener"
)
CONNECTIONS_REFUSED = Metric.counter(
    "kompakt_connections_refused_total", "Connections closed because of a limit.", "listener"
)
CONNECTIONS_DELAYED = Metric.counter(
    "kompakt_connections_delayed_total",
    "Connections that had to wait because of a bound on their rate.",
    "listener",
)
CONNECTIONS_DELAYED_SECONDS = Metric.counter(
    "kompakt_connections_delayed_seconds_total", "Time for which they had to wait.", "listener"
)
PROTOCOL_ERRORS = Metric.counter(
    "kompakt_protocol_errors_total",
    "Connections closed because the client violated the protocol.",
    "listener",
)
CERTIFICATE_EXPIRY = Metric.gauge(
    "kompakt_certificate_expiry_seconds",
    "Seconds until the certificate of a listener expires; negative once it has.",
    "listener",
)
TLS_HANDSHAKES_FAILED = Metric.counter(
    "kompakt_tls_handshakes_failed_total",
    "Connections closed because their TLS handshake failed.",
    "listener",
)
NETWORK_RECEIVED = Metric.counter("kompakt_network_received_bytes_total", "Bytes of requests.")
NETWORK_SENT = Metric.counter("kompakt_network_sent_bytes_total", "Bytes of responses.")

REQUESTS = Metric.counter(
    "kafka_network_requestmetrics_requests_total", "Requests answered.", "request"
)
REQUEST_TIME = Metric.gauge(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from a request's frame to its response, by quantile, in the last five minutes.",
    "request",
    "quantile",
)
CONNECTION_COUNT = Metric.gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections; there is one network processor.",
    "listener",
    "networkProcessor",
)
_LOGIN_LABELS = ("listener", "networkProcessor", "mechanism")
LOGINS = Metric.counter(
    "kafka_server_socket_server_metrics_successful_authentication_total",
    "Successful logins.",
    *_LOGIN_LABELS,
)
LOGINS_FAILED = Metric.counter(
    "kafka_server_socket_server_metrics_failed_authentication_total",
    "Refused logins.",
    *_LOGIN_LABELS,
)
LOGINS_AGAIN = Metric.counter(
    "kafka_server_socket_server_metrics_successful_reauthentication_total",
    "Successful logins of clients that were authenticated before.",
    *_LOGIN_LABELS,
)
LOGINS_AGAIN_FAILED = Metric.counter(
    "kafka_server_socket_server_metrics_failed_reauthentication_total",
    "Refused logins of clients that were authenticated before.",
    *_LOGIN_LABELS,
)
SESSIONS_EXPIRED = Metric.counter(
    "kafka_server_socket_server_metrics_expired_connections_killed_count_total",
    "Connections closed because the client did not authenticate again in time.",
    "listener",
    "networkProcessor",
)
PRODUCES = Metric.counter(
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "Batches in produce requests, appended or refused.",
    "topic",
)
PRODUCES_FAILED = Metric.counter(
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "Batches of produce requests that were refused, for any reason.",
    "topic",
)
FETCHES = Metric.counter(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "Partitions in answered fetch requests.",
    "topic",
)
FETCHES_FAILED = Metric.counter(
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "Partitions in fetch requests that were answered with an error.",
    "topic",
)

FETCH_SESSIONS = Metric.gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Fetch sessions, in which clients need not name all their partitions in each request.",
)
FETCH_SESSION_PARTITIONS = Metric.gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "Partitions that fetch sessions remember.",
)
FETCH_SESSION_EVICTIONS = Metric.counter(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "Fetch sessions that lost their slot to another client's.",
)

KEY_LOOKUPS = Metric.counter(
    "kompakt_key_lookups_total",
    "Keys that were looked up in a partition (kompakt get); in all partitions, unless one was named.",
)
KEY_TABLES = Metric.gauge(
    "kompakt_key_lookup_tables",
    "Partitions that have a table by which keys are looked up and views are filtered.",
)
KEY_TABLE_BYTES = Metric.gauge(
    "kompakt_key_lookup_table_bytes",
    "Memory of these tables; key.lookup.bytes.max is the most that it may be.",
)
KEY_TABLE_SPILLED_BYTES = Metric.gauge(
    "kompakt_key_lookup_spilled_bytes",
    "What tables have on the disk that do not fit into key.lookup.bytes.max; a lookup reads a block.",
)
KEY_TABLES_MADE = Metric.counter(
    "kompakt_key_lookup_tables_made_total",
    "Tables that were made: if it grows steadily, more memory would make lookups faster.",
)
VIEW_READS = Metric.counter(
    "kompakt_view_reads_total",
    "Reads of a partition of a view (<topic>.latest) that returned records or a new position: stored, as"
    " the records lie in the log, or filtered, without those that others outrank.",
    "how",
)
VIEW_SCANNED_BYTES = Metric.counter(
    "kompakt_view_scanned_bytes_total",
    "Bytes of logs that were read to filter views: a topic that is cleaned more often needs fewer.",
)

# Quotas of clients. Of the clients that have a quota, a metric lists those that were active last.
THROTTLES = Metric.counter(
    "kompakt_throttles_total", "Requests after which a client had to pause, by quota.", "quota"
)
THROTTLE_SECONDS = Metric.counter(
    "kompakt_throttle_seconds_total", "Time for which clients had to pause, by quota.", "quota"
)
QUOTA_ENTITIES = Metric.gauge("kompakt_quota_entities", "Entities that have quotas.")
PRODUCE_RATE = Metric.gauge(
    "kafka_server_produce_byte_rate",
    "Bytes of produce requests a second of a client with a quota.",
    "user",
    "client_id",
)
FETCH_RATE = Metric.gauge(
    "kafka_server_fetch_byte_rate",
    "Bytes fetched a second by a client with a quota.",
    "user",
    "client_id",
)
LOOP_SHARE = Metric.gauge(
    "kafka_server_request_request_time",
    "Percentage of the event loop's time that a client with a quota uses.",
    "user",
    "client_id",
)
MUTATION_TOKENS = Metric.gauge(
    "kafka_server_controllermutation_tokens",
    "Partitions that a client with a quota may still create or delete.",
    "user",
    "client_id",
)
QUOTA_USES = {
    "producer_byte_rate": PRODUCE_RATE,
    "consumer_byte_rate": FETCH_RATE,
    "request_percentage": LOOP_SHARE,
    "controller_mutation_rate": MUTATION_TOKENS,
}
"""By quota, the metric of what clients use of it."""
