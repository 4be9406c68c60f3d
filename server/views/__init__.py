"""Read-only topics of the broker's own: views of last values, and topics in snapshots."""
