from pathlib import Path

import pytest

from trunkline.analytics.demo.broker import PUBLISHER, opened
from trunkline.analytics.demo.client import Refused, connected
from trunkline.events.reader import EventLog
from trunkline.mqtt.packets import Connect


async def test_only_who_has_the_password_publishes_results(tmp_path: Path) -> None:
    async with opened(tmp_path) as running:
        assert running.secret.stat().st_mode & 0o077 == 0
        async with connected(running.host, running.port, Connect("phone-9")) as client:
            assert await client.publish("$analytics/x", b"", 1) == 0x87
            assert await client.publish("plant/control/x", b"", 1) == 0x87
            assert await client.publish("plant/1/x", b"", 1) == 0x10
        password = running.secret.read_bytes()
        async with connected(
            running.host, running.port, Connect("sink", username=PUBLISHER, password=password)
        ) as client:
            assert await client.publish("$analytics/x", b"", 1) == 0x10
        with pytest.raises(Refused):
            async with connected(running.host, running.port, Connect("sink", username=PUBLISHER, password=b"guess")):
                pass


async def test_devices_are_recorded_and_who_publishes_results_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as running:
        for name in ("phone-9", "trunkline-sink-1"):
            async with connected(running.host, running.port, Connect(name)):
                pass
        where = running.log
    log = EventLog(where)
    log.refresh()
    ((node, extent),) = log.nodes().items()
    rows = [row for batch in log.read(node, extent.first, extent.end) for row in batch.to_pylist()]
    assert {row["client_id"] for row in rows if row["client_id"] is not None} == {"phone-9"}
    assert {"exporter.started", "client.connected", "exporter.stopped"} <= {row["kind"] for row in rows}
