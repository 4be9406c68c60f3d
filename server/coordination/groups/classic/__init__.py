"""Groups of the classic protocol: a state machine, its members, its generations."""
