"""What users get wrong is said at their own call, in words, and nothing is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from trunkline.client import Client, ConnectionSettings, SessionClient, sync
from trunkline.config.errors import ConfigError
from trunkline.testing import Broker, ThreadBroker

#: Nothing listens there.
NOWHERE = ConnectionSettings(port=1)


@pytest.mark.parametrize("payload", [5, 21.5, None, True, {"a": 1}, [1, 2]])
async def test_a_payload_is_bytes_or_text(mqtt_broker: Broker, payload: Any) -> None:
    """A number is not so many zero bytes."""
    words = f"bytes or str, not {type(payload).__name__}"
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(TypeError, match=words):
            await client.publish("t", payload)
        with pytest.raises(TypeError, match=words):
            client.publish_nowait("t", payload)
        with pytest.raises(TypeError, match=words):
            await client.publish_many("t", [b"good", payload])
        await client.publish("end")
    assert [message.topic for message in mqtt_broker.messages] == ["end"]


async def test_all_kinds_of_bytes_and_text_are_payloads(mqtt_broker: Broker) -> None:
    async def some() -> AsyncIterator[bytes | str]:
        yield "d"
        yield b"e"

    kinds: list[Any] = [bytearray(b"a"), memoryview(b"b")]
    async with Client(open_stream=mqtt_broker.connect) as client:
        for payload in kinds:
            await client.publish("t", payload)
        await client.publish_many("t", ["c"])
        await client.publish_many("t", some())
        await client.ping()
    assert [message.payload for message in mqtt_broker.messages] == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("payloads", ["text", b"bytes", 5])
async def test_a_single_payload_is_not_many(mqtt_broker: Broker, payloads: Any) -> None:
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(TypeError, match=f"a list or another iterable, not {type(payloads).__name__}"):
            await client.publish_many("t", payloads)


def test_nor_is_it_for_threads(mqtt_broker: ThreadBroker) -> None:
    with (
        sync.Client(ConnectionSettings(port=mqtt_broker.port)) as client,
        pytest.raises(TypeError, match="another iterable, not str"),
    ):
        client.publish_many("t", "text")


@pytest.mark.parametrize("name", [5, None, b"t", ["t"]])
async def test_topics_are_text(mqtt_broker: Broker, name: Any) -> None:
    words = f"a topic filter is a str, and several are passed one by one, not {type(name).__name__}"
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(TypeError, match=f"a topic name is a str, not {type(name).__name__}"):
            await client.publish(name)
        with pytest.raises(TypeError, match=words):
            await client.subscribe(name)
        with pytest.raises(TypeError, match=words):
            await client.unsubscribe_from(name)
        with pytest.raises(TypeError, match=words):
            client.receive_from(name)


@pytest.mark.parametrize("qos", [3, -1, "1", None, 1.0])
async def test_qos_is_a_number_up_to_2(mqtt_broker: Broker, qos: Any) -> None:
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(ValueError, match=f"QoS is 0, 1 or 2, not {qos!r}"):
            await client.publish("t", qos=qos)
        with pytest.raises(ValueError, match=f"QoS is 0, 1 or 2, not {qos!r}"):
            await client.subscribe("t", qos=qos)


async def test_retain_is_a_flag(mqtt_broker: Broker) -> None:
    wrong: Any = "no"
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(TypeError, match="retain is True or False, not 'no'"):
            await client.publish("t", retain=wrong)


WRONG: list[tuple[dict[str, object], str]] = [
    ({"content_typ": "x"}, "'content_typ' is not a property; did you mean content_type"),
    ({"content_type": "x" * 65_536}, "property content_type: 'x*: a string of 65536 bytes is longer"),
    ({"content_type": 5}, "property content_type: 5: accepted is: string"),
    ({"user_property": {"a": "b"}}, "property user_property: {'a': 'b'}: accepted is: pairs of strings"),
    ({"user_property": [("a", 1)]}, r"property user_property: \[\('a', 1\)\]: accepted"),
    ({"message_expiry_interval": "5"}, "message_expiry_interval: '5': accepted is: four byte integer"),
    ({"message_expiry_interval": "soon"}, "message_expiry_interval: 'soon': accepted is: four byte integer"),
    ({"message_expiry_interval": 1.5}, "message_expiry_interval: 1.5: accepted"),
    ({"message_expiry_interval": -1}, "message_expiry_interval: -1: accepted"),
    ({"payload_format_indicator": 7}, "payload_format_indicator: 7: 7 where only 0 and 1"),
    ({"response_topic": "a/#"}, "response_topic: 'a/#': 'a/#' cannot be a response topic"),
    ({"correlation_data": "text"}, "correlation_data: 'text': accepted is: binary data"),
    ({"topic_alias": 3}, "topic_aliases_out"),
    ({"session_expiry_interval": 3}, "session_expiry_interval is not a property of PUBLISH"),
]


@pytest.mark.parametrize(("properties", "words"), WRONG)
async def test_properties_for_which_a_server_would_end_the_connection(
    mqtt_broker: Broker, properties: Any, words: str
) -> None:
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(ValueError, match=words):
            await client.publish("t", properties=properties)
        with pytest.raises(ValueError, match=words):
            await client.publish_many("t", [b"x", b"y"], properties=properties)
        await client.publish("end")
    assert [message.topic for message in mqtt_broker.messages] == ["end"]


async def test_properties_of_other_packets(mqtt_broker: Broker) -> None:
    five: Any = 5
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(ValueError, match="subscription_identifier: 5: accepted is: a list of one number"):
            await client.subscribe("t", properties={"subscription_identifier": five})
        with pytest.raises(ValueError, match="content_type is not a property of UNSUBSCRIBE"):
            await client.unsubscribe_from("t", properties={"content_type": "x"})
        with pytest.raises(ValueError, match="reason_string: 5: accepted"):
            await client.disconnect(properties={"reason_string": five})
        with pytest.raises(TypeError, match="properties are a dict, not int"):
            await client.publish("t", properties=five)
        reason = await client.publish("t", qos=1, properties={"response_topic": "a", "message_expiry_interval": 5})
        assert reason == 0x10


def test_properties_and_payload_of_a_will() -> None:
    wrong: list[Any] = [{"topic": "t", "properties": {"response_topic": "a/#"}}, {"topic": "t", "payload": 5}]
    with pytest.raises(ConfigError, match="response_topic: 'a/#': 'a/#' cannot"):
        ConnectionSettings(will=wrong[0])
    with pytest.raises(ConfigError, match="will.payload: 5: accepted is text or bytes"):
        ConnectionSettings(will=wrong[1])


@pytest.mark.parametrize("make", [Client, SessionClient, sync.Client, sync.SessionClient])
def test_settings_are_no_address(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"ConnectionSettings.from_url\(…\), not str"):
        make("mqtt://localhost")


def test_settings_are_made_of_keywords() -> None:
    make: Callable[..., ConnectionSettings] = ConnectionSettings
    with pytest.raises(TypeError, match=r"ConnectionSettings\(KEY=VALUE"):
        make("localhost")
    with pytest.raises(ConfigError, match="host and port are two keys: localhost and 1884"):
        make(host="localhost:1884")
    assert make(host="::1").host == "::1"


def test_a_client_of_trio_is_not_for_asyncio() -> None:
    async def main() -> None:
        async with Client(NOWHERE):
            pass

    with pytest.raises(RuntimeError, match="needs trio"):
        asyncio.run(main())


async def test_nor_for_another_thread(mqtt_broker: Broker) -> None:
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(RuntimeError, match="not for other threads"):
            await trio.to_thread.run_sync(client.publish_nowait, "wrong")
        await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(client.publish_nowait, "right"))
        await client.ping()
    assert [message.topic for message in mqtt_broker.messages] == ["right"]
