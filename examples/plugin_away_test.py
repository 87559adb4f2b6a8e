"""Test a plugin with the fixture `mqtt_broker`: in trio, and in a test without it.

Run it with `pytest examples/plugin_away_test.py`.
"""

import pytest
import trio
from plugin_away import Away, AwaySettings
from trio.testing import MockClock

from trunkline.client import Client, ConnectionSettings, DisconnectedByServer, sync
from trunkline.testing import Broker, ThreadBroker


@pytest.mark.trio
async def test_who_says_nothing_is_sent_away(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """In trio everything obeys the clock of the test: an hour passes in no time."""
    await mqtt_broker.plugins.enable("away", AwaySettings(after=3600), Away)

    async def say_nothing() -> None:
        settings = ConnectionSettings(client_id="shy", keep_alive=0)
        async with Client(settings, open_stream=mqtt_broker.connect):
            await trio.sleep(3500)
            assert mqtt_broker.plugins.call("away", "last") == [{"client_id": "shy", "silent": 3500.0}]
            await trio.sleep(500)

    with pytest.raises(DisconnectedByServer, match="you said nothing"):
        await say_nothing()
    assert not mqtt_broker.clients


def test_who_publishes_stays(mqtt_broker: ThreadBroker) -> None:
    """The broker runs in a thread, and its time goes on when the test says so."""
    mqtt_broker.plugins.enable("away", AwaySettings(after=3600), Away)
    settings = ConnectionSettings(port=mqtt_broker.port, client_id="talker", keep_alive=0)
    with sync.Client(settings) as client:
        for _ in range(4):
            client.publish("news", qos=1)
            mqtt_broker.clock.advance(1800)
        assert [row.client_id for row in mqtt_broker.clients] == ["talker"]
        assert mqtt_broker.metrics()["plugins.away.watched"] == 1
