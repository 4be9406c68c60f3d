"""Tables of the latest value of each key."""
