"""Tables that become compacted topics."""
