"""How far apart the epochs of two leaders of one log are.

A start of a broker leads its logs, and its metadata log, with an epoch above the last one. A promotion
leaves room below its own, so that the broker from which it has taken over cannot count up to the same
epochs if it starts on its own: records of one epoch from two leaders would not show as a divergence.
"""

from __future__ import annotations

EPOCH_STEP = 10_000
"""The room that a promotion leaves; 2^30 epochs allow for 100,000 promotions."""
