"""The second path of the simplest requests: in the callback that received them, without a queue."""
