"""Bytes in, answers out: listeners, connections, the outbox, limits."""
