"""What can go wrong between this process and another broker. Each error is one sentence."""

from __future__ import annotations


class ClientFailed(Exception):
    """The broker refused the request or the login."""


class Misconfigured(ClientFailed):
    """The client's own properties cannot work; no broker was asked."""


class BadAddress(Misconfigured):
    """An address is not host:port."""


class Unreachable(ClientFailed):
    """No broker answers at the address, or not in time."""


class NoTls(Unreachable):
    """A server answers, but no TLS connection is possible."""


class NoneAdvertised(Unreachable):
    """A broker sends its clients to addresses where no broker answers."""


class NotABroker(Unreachable):
    """A server closed the connection, or what it sent is no answer of a broker."""
