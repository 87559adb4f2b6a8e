from functools import partial

import pytest
import trio

from trunkline.analytics.demo.client import Client, Gone, Refused, connected
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.packets import Connect, Publish
from trunkline.mqtt.reasons import Reason
from trunkline.testing import Broker


class Taken:
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[Publish](100)

    async def __call__(self, message: Publish) -> None:
        await self.send.send(message)


async def test_messages_go_there_and_come_back(mqtt_broker: Broker) -> None:
    taken = Taken()
    async with connected(mqtt_broker.host, mqtt_broker.port, Connect("c"), taken) as client:
        await client.subscribe("a/#", "b", qos=1)
        assert await client.publish("a/1", b"one", 1) == 0
        await client.publish("b", b"two")
        found = [await taken.receive.receive() for _ in range(2)]
    assert [(message.topic, message.payload, message.qos) for message in found] == [
        ("a/1", b"one", 1),
        ("b", b"two", 0),
    ]


async def test_goodbye_is_said(mqtt_broker: Broker) -> None:
    reasons: list[int] = []

    def note(client: ClientInfo, reason: int, text: str) -> None:
        reasons.append(reason)

    mqtt_broker.hooks.add("client.disconnected", note)
    async with connected(mqtt_broker.host, mqtt_broker.port, Connect("polite")):
        pass
    await mqtt_broker.wait_until(lambda: len(reasons) == 1)
    async with connected(mqtt_broker.host, mqtt_broker.port, Connect("rude")) as client:
        client.vanish()
    await mqtt_broker.wait_until(lambda: len(reasons) == 2)
    assert reasons[0] == Reason.SUCCESS
    assert reasons[1] != Reason.SUCCESS


async def test_a_refused_connection(mqtt_broker: Broker) -> None:
    mqtt_broker.hooks.add("client.authenticate", lambda client, password: Deny(Reason.BANNED))
    with pytest.raises(Refused, match="refused the connection: 0x8A"):
        async with connected(mqtt_broker.host, mqtt_broker.port, Connect("c")):
            pass


async def test_a_refused_subscription_and_message(mqtt_broker: Broker) -> None:
    mqtt_broker.hooks.add("client.check_acl", lambda client, action, topic, qos, retain: Deny())
    async with connected(mqtt_broker.host, mqtt_broker.port, Connect("c")) as client:
        assert await client.publish("a", b"", 1) == Reason.NOT_AUTHORIZED
        with pytest.raises(Refused, match="refused the subscription: 0x87"):
            await client.subscribe("a")


async def test_nobody_there(mqtt_broker: Broker) -> None:
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener[0].socket.getsockname()[1]
    await listener[0].aclose()
    with pytest.raises(Gone):
        async with connected("127.0.0.1", port, Connect("c")):
            pass


@pytest.mark.parametrize("said", [b"", b"\x20\x03\x00\x00\x00\xff", b"\xd0\x00", b"HTTP/1.1 400 Bad Request\r\n"])
async def test_what_is_no_broker(said: bytes, nursery: trio.Nursery) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said)

    listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(Gone):
        async with connected("127.0.0.1", port, Connect("c")) as client:
            await client.publish("a", b"", 1)
    nursery.cancel_scope.cancel()


async def test_who_waits_for_an_answer_is_told_of_the_end(mqtt_broker: Broker, nursery: trio.Nursery) -> None:
    mqtt_broker.faults.drop(packet="puback")
    told = trio.Event()

    async def publish(client: Client) -> None:
        with pytest.raises(Gone):
            await client.publish("a", b"", 1)
        told.set()

    async with connected(mqtt_broker.host, mqtt_broker.port, Connect("c")) as client:
        nursery.start_soon(publish, client)
        await mqtt_broker.wait_for("a")
        mqtt_broker.kick("c")
        await told.wait()
        await client.over.wait()
