"""What a session asks of its node."""

from dataclasses import replace
from math import inf
from typing import Any

from tests.broker.inside import inside
from trunkline import testing
from trunkline.broker.session.services import FOR_EVER, Services, bounded_expiry
from trunkline.config.mqtt_settings import SessionSettings
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.message import Message


def services(b: testing.Broker) -> Services:
    return inside(b.node).services


async def test_what_a_hook_returns_is_the_same_publication() -> None:
    async with testing.broker() as b:
        client = ClientInfo("a", "mary")
        message = Message("t", b"x", publisher="a", username="mary", guid=7, timestamp=5.0)
        assert services(b).publishing(client, message, 100.0) is message

        def another(client: ClientInfo, message: Message) -> Message:
            return Message("u", b"y", properties={"message_expiry_interval": 30}, publisher="somebody", guid=1)

        b.hooks.add("message.publish", another)
        changed: Any = services(b).publishing(client, message, 100.0)
        assert (changed.topic, changed.guid, changed.timestamp) == ("u", 7, 5.0)
        assert (changed.publisher, changed.username, changed.expires_at) == ("a", "mary", 130.0)


async def test_a_hook_can_take_the_expiry_away_and_refuse() -> None:
    async with testing.broker() as b:
        b.hooks.add("message.publish", lambda client, message: replace(message, properties={}))
        message = Message("t", b"", properties={"message_expiry_interval": 5}, expires_at=105.0)
        changed: Any = services(b).publishing(ClientInfo("a"), message, 100.0)
        assert changed.expires_at == inf
        b.hooks.add("message.publish", lambda client, message: Deny(text="no"))
        assert isinstance(services(b).publishing(ClientInfo("a"), message, 100.0), Deny)


async def test_the_publisher_of_a_stored_message_is_the_client_if_it_is_the_same_user() -> None:
    async with testing.broker() as b:
        here = ClientInfo("a", "mary", listener="inside")
        inside(b.node).sessions.add(here)
        assert services(b).publisher_of(Message("t", b"", publisher="a", username="mary")) is here
        for client_id, username in (("a", "john"), ("gone", "mary")):
            found = services(b).publisher_of(Message("t", b"", publisher=client_id, username=username))
            assert (found.client_id, found.username, found.listener) == (client_id, username, "")


def test_session_expiries_are_bounded() -> None:
    free, bounded = SessionSettings(), SessionSettings(max_expiry_interval=100)
    assert [bounded_expiry(asked, free) for asked in (0, 5, FOR_EVER)] == [0, 5, inf]
    assert [bounded_expiry(asked, bounded) for asked in (0, 5, 101, FOR_EVER)] == [0, 5, 100, 100]
