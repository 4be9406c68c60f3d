"""Groups of the consumer protocol (KIP-848): a state machine, its members, the assignors."""
