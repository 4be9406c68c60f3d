"""Kafka's wire protocol: bytes to values and back. Sans-IO: no sockets, no files, no clock."""
