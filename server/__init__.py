"""The broker: listeners, connections, one handler file per API, metadata, the composition root."""
