"""MQTT as a protocol of listeners."""

from typing import Any

from tests.broker.room import room
from tests.wire import Wire
from trunkline.broker.connection.connection import Connection
from trunkline.broker.connection.mqtt import Mqtt
from trunkline.config.config import Config
from trunkline.config.mqtt_settings import RateSettings

ANY: Any = None


async def test_connections_at_a_listener_follow_its_settings() -> None:
    async with room() as here, await Wire.open(here.broker.host, here.broker.port) as wire:
        await wire.connect("a")
        (connection,) = here.node.listeners[0].acceptor.connections
        assert isinstance(connection, Connection)
        before = here.session("a").channel
        assert before is not None
        here.admin.reconfiguring.reload(
            here.node.config.model_copy(update={"rate": RateSettings(client_messages="1/s")})
        )
        assert before.config.rate.client_messages == "1/s"


async def test_listeners_share_the_limits_of_the_node_while_these_are_the_same() -> None:
    async with room() as here:
        config = Config(rate=RateSettings(messages="1/s"))
        mqtt = Mqtt(here.node.services, here.node.sessions, ANY)

        def drawn_from(at: Config) -> object:
            protocol: Any = mqtt.at(at, at.listeners[0])
            return protocol._listener.limits.of_connection().messages[0]

        first = drawn_from(config)
        assert drawn_from(config) is first
        assert drawn_from(config.model_copy(update={"rate": RateSettings(messages="1/s")})) is first
        assert drawn_from(config.model_copy(update={"rate": RateSettings(messages="2/s")})) is not first
