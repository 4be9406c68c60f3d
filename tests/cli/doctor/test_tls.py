"""What `kompakt doctor` says of listeners with TLS."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.doctor.findings import Status
from cli.doctor.tls import check_certificate, judge_expiry, judge_tls_port
from server.config.config import BrokerConfig
from tests.harness.certificates import Certificates
from tests.harness.served_broker import serving_broker

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("left", "status", "text"),
    [
        (timedelta(days=31), Status.OK, "is valid until 2030-02-01 00:00 UTC"),
        (timedelta(days=29), Status.WARNING, "is valid until 2030-01-30 00:00 UTC"),
        (timedelta(seconds=-1), Status.FAULT, "expired at 2029-12-31 23:59 UTC"),
    ],
)
def test_a_certificate_is_judged_by_the_time_it_has_left(
    left: timedelta, status: Status, text: str
) -> None:
    finding = judge_expiry("SSL", NOW + left, NOW)

    assert finding.status is status
    assert text in finding.text


def test_stores_are_checked_before_the_start(tmp_path: Path) -> None:
    path = Certificates(tmp_path).broker()
    texts = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(path)}
    config = BrokerConfig.from_texts(texts)
    (listener,) = config.resolved_listeners()
    now = datetime.now(UTC)

    assert check_certificate(listener, config, now).status is not Status.FAULT
    path.write_text("nothing")
    finding = check_certificate(listener, config, now)
    assert finding.status is Status.FAULT
    assert f"ssl.keystore.location: {path}: it is neither PEM" in finding.text


async def test_a_running_broker_is_recognized_by_its_tls(tmp_path: Path) -> None:
    path = str(Certificates(tmp_path).broker())
    both = "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    async with serving_broker(tmp_path / "d", listeners=both, ssl_keystore_location=path) as served:
        for name, status in (("SSL", Status.OK), ("PLAINTEXT", Status.FAULT)):
            port = served.broker.addresses[name][1]
            (listener,) = BrokerConfig.from_texts(
                {"listeners": f"SSL://127.0.0.1:{port}"}
            ).resolved_listeners()
            assert (await asyncio.to_thread(judge_tls_port, listener)).status is status
