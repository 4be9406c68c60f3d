"""Requests of clients: produce, fetch, TLS, idle connections, authorization, groups."""
