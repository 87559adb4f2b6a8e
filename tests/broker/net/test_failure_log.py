"""Connections that their layers ended: counted, and told of once a minute."""

import pytest

from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.failure_log import FailureLog
from trunkline.broker.net.transport import Failed


async def test_failures_are_told_by_listener_and_problem(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    failures = FailureLog(metrics, Scheduler().call_at)
    failures.note("tls", ("192.0.2.1", 5), Failed("no certificate", "of any kind"))
    failures.note("tls", None, Failed("no header"))
    for port in range(3):
        failures.note("tls", ("192.0.2.2", port), Failed("no certificate"))
    assert caplog.messages == [
        "tls: 1 connection failed from 1 host: no certificate (192.0.2.1: of any kind)",
        "tls: 1 connection failed from 1 host: no header (this process)",
    ]
    failures.flush()
    assert metrics.connections_broken == 5
    assert "3" in caplog.messages[-1]
    assert "192.0.2.2" in caplog.messages[-1]
