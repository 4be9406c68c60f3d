"""Transactions: the owners of transactional ids, the state of their transactions, and the markers."""
