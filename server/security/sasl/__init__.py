"""SASL: one pure step machine for each mechanism, and the state of each connection's login."""
