"""Transactions: whose a transactional id is, what its transaction has come to, and its markers."""
