"""The coordinators' records."""
