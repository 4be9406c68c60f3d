"""A pass that changes nothing: plan, key search, digest."""
