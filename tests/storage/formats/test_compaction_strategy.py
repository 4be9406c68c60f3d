"""A strategy's text can be read again, and no other text can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

STRATEGIES = st.sampled_from([BY_OFFSET, CompactionStrategy(Ranking.TIMESTAMP)]) | st.builds(
    CompactionStrategy, st.just(Ranking.HEADER), st.text(min_size=1)
)


@given(STRATEGIES)
def test_the_text_of_a_strategy_is_parsed(strategy: CompactionStrategy) -> None:
    assert CompactionStrategy.parse(str(strategy)) == strategy


@pytest.mark.parametrize(
    "text", ["", "newest", "header", "header ", "offset ", "timestamp x", "Offset", " offset"]
)
def test_another_text_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is none of offset, timestamp and 'header NAME'"):
        CompactionStrategy.parse(text)
