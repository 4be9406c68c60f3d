"""Quotas: what clients may use, what they have used, how long they must wait."""
