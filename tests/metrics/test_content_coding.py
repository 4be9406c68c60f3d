"""Which Accept-Encoding allows gzip."""

from __future__ import annotations

import pytest

from metrics.content_coding import accepts_gzip


@pytest.mark.parametrize(
    "header", ["gzip", "gzip, deflate", "deflate, gzip;q=0.5", "GZIP", "*", "br, *;q=0.1", "gzip ; q=1"]
)  # fmt: skip
def test_gzip_is_sent_to_a_client_that_takes_it(header: str) -> None:
    assert accepts_gzip(header)


@pytest.mark.parametrize(
    "header",
    [None, "", "identity", "br", "gzip;q=0", "*, gzip;q=0", "gzip;q=x", "gzip;q=nan", "xgzip"],
)  # fmt: skip
def test_plain_text_is_sent_to_every_other_client(header: str | None) -> None:
    assert not accepts_gzip(header)
