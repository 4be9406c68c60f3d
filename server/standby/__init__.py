"""Standbys: the copies of a broker's logs that can take over, and the promotion that lets them."""
