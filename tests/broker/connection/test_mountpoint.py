import logging
from typing import Any

import pytest

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.connection.mountpoint import Mountpoint, Unmountable, mountpoint_of, without_prefix
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Pingresp, Publish
from trunkline.mqtt.versions import Version


@pytest.mark.parametrize(
    ("topic", "full"),
    [
        ("a", "p/a"),
        ("", ""),
        ("#", "p/#"),
        ("/a", "p//a"),
        ("$SYS", "$SYS"),
        ("$SYS/#", "$SYS/#"),
        ("$SYSTEM", "p/$SYSTEM"),
        ("$share/g/a/+", "$share/g/p/a/+"),
        ("$share/g/$SYS/#", "$share/g/$SYS/#"),
        ("$stream/s", "$stream/s/p/#"),
        ("$stream/s/", "$stream/s/p/#"),
        ("$stream/s/a", "$stream/s/p/a"),
        ("$exclusive/a", "$exclusive/p/a"),
        ("$delayed/5/a/b", "$delayed/5/p/a/b"),
        ("$delayed/5/$delayed/5/a", "$delayed/5/$delayed/5/p/a"),
        ("$delayed/5", "p/$delayed/5"),
    ],
)
def test_full_topics(topic: str, full: str) -> None:
    assert Mountpoint("p/").full(topic) == full


def test_a_topic_that_is_too_long() -> None:
    with pytest.raises(ProtocolError, match="too long behind its mountpoint"):
        Mountpoint("p/").full("é" * 32_767)


@pytest.mark.parametrize(
    ("client_id", "username", "prefix"), [("a", "b", "x/a/b/"), ("%u", "b", "x/%u/b/"), ("a", "%c", "x/a/%c/")]
)
def test_id_and_user_name_in_a_mountpoint(client_id: str, username: str, prefix: str) -> None:
    assert mountpoint_of("x/%c/%u/", ClientInfo(client_id, username)) == prefix


@pytest.mark.parametrize("name", ["+", "#", "a/b", "$SYS", "", None])
def test_no_client_leaves_its_mountpoint_by_its_name(name: str | None) -> None:
    with pytest.raises(Unmountable):
        mountpoint_of("x/%u/", ClientInfo("a", name))
    assert mountpoint_of("x/%c/", ClientInfo("a", name)) == "x/a/"


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("size", [0, 100, 127, 128, 16_383, 70_000])
def test_sent_packets(version: Version, size: int) -> None:
    sent = [
        (Publish("p/a", bytes(size), packet_id=0), "a"),
        (Publish("p/" + "b" * 130, bytes(size), qos=1, packet_id=5), "b" * 130),
        (Publish("p/", b"x"), "p/"),
        (Publish("$SYS/p/a", b"x"), "$SYS/p/a"),
        (Publish("q/a", b"x"), "q/a"),
    ]
    data = b"".join(encode(packet, version) + encode(Pingresp(), version) for packet, _ in sent)
    decoder = Decoder(server=False, version=version)
    found: list[Any] = decoder.feed(without_prefix(data, b"p/"))
    assert decoder.error is None
    publishes = [packet for packet in found if isinstance(packet, Publish)]
    assert [(p.topic, p.payload, p.qos) for p in publishes] == [(topic, p.payload, p.qos) for p, topic in sent]
    assert len(found) == 2 * len(sent)


def mounted(template: str) -> dict[str, Any]:
    listeners = [{"url": "tcp://127.0.0.1:0", "name": "in"}, {"url": "tcp://127.0.0.1:0", "name": "out"}]
    return {"listeners": [{**listeners[0], "mountpoint": template}, listeners[1]], "sys": {"interval": 0}}


@pytest.mark.parametrize("logged", [False, True])
async def test_clients_see_their_own_topics_only(logged: bool, caplog: pytest.LogCaptureFixture) -> None:
    if logged:
        caplog.set_level(logging.DEBUG, "trunkline.packets")
    async with testing.broker(**mounted("dev/%c/")) as b:
        inside, outside = (listener.address for listener in b.node.listeners)
        async with await Wire.open(*inside) as a, await Wire.open(*inside) as c, await Wire.open(*outside) as all_of_it:
            await a.connect("a")
            await c.connect("c")
            await all_of_it.connect("all")
            await all_of_it.subscribe(("#", 1))
            for wire in (a, c):
                await wire.subscribe(("#", 1))
            await a.publish("t", b"1")
            await a.take_publish("t", b"1")
            await all_of_it.take_publish("dev/a/t", b"1")
            await all_of_it.publish("dev/c/t", b"2", qos=0)
            await c.take_publish("t", b"2")
            await all_of_it.take_publish("dev/c/t", b"2")
            await a.ping()
            assert sorted(row.filter for row in b.subscriptions) == ["#", "dev/a/#", "dev/c/#"]
            await a.send(raw.unsubscribe(7, "#"))
            assert (await a.expect_type(raw.UNSUBACK)).reasons == [0]
            assert sorted(row.filter for row in b.subscriptions) == ["#", "dev/c/#"]


async def test_wills_and_retained_messages_have_the_mountpoint() -> None:
    async with testing.broker(**mounted("dev/%c/")) as b:
        inside, outside = (listener.address for listener in b.node.listeners)
        async with await Wire.open(*outside) as all_of_it:
            await all_of_it.connect("all")
            await all_of_it.subscribe(("dev/#", 0))
            a = await Wire.open(*inside)
            await a.connect("a", will=raw.Will("gone", b"w"))
            await a.publish("kept", b"k", retain=True)
            await all_of_it.take_publish("dev/a/kept", b"k")
            await a.abort()
            await all_of_it.take_publish("dev/a/gone", b"w")
        assert [row.topic for row in b.retained] == ["dev/a/kept"]


async def test_a_client_whose_id_is_no_level_is_refused() -> None:
    async with testing.broker(**mounted("dev/%c/")) as b, await Wire.open(*inside(b.node).listeners[0].address) as wire:
        await wire.send(raw.connect("+"))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0x85
        await wire.expect_close()


async def test_a_burst_for_a_mounted_client() -> None:
    async with testing.broker(history=0, **mounted("dev/%c/")) as b:
        inside, outside = (listener.address for listener in b.node.listeners)
        async with await Wire.open(*inside) as a, await Wire.open(*outside) as far:
            await a.connect("a")
            await far.connect("far")
            await a.subscribe(("$share/g/+", 1), ("t/#", 0))
            await far.send(*(raw.publish("dev/a/t/x", b"%d" % number) for number in range(300)))
            for number in range(300):
                await a.expect_publish("t/x", b"%d" % number)
            await far.send(*(raw.publish("dev/a/s", b"x", qos=1, packet_id=number) for number in range(1, 51)))
            for _ in range(50):
                await a.take_publish("s", b"x", qos=1)


async def test_topic_aliases_of_a_mounted_client() -> None:
    async with testing.broker(**mounted("dev/%c/")) as b:
        inside, outside = (listener.address for listener in b.node.listeners)
        async with await Wire.open(*inside) as a, await Wire.open(*outside) as far:
            await a.connect("a", properties=raw.topic_alias_maximum(5))  # and takes five aliases
            await far.connect("far")
            await far.subscribe(("dev/#", 0))
            await a.subscribe(("back", 0))
            await a.publish("t", b"1", properties=raw.topic_alias(1))
            await a.publish("", b"2", properties=raw.topic_alias(1))
            await far.take_publish("dev/a/t", b"1")
            await far.take_publish("dev/a/t", b"2")
            for payload in (b"1", b"2"):
                await far.publish("dev/a/back", payload)
            first = await a.expect_type(raw.PUBLISH)
            second = await a.expect_type(raw.PUBLISH)
            assert (first.topic, second.topic) == ("back", "")


async def test_packets_behind_the_connect_have_the_mountpoint() -> None:
    async with testing.broker(**mounted("dev/%c/")) as b:
        inside, outside = (listener.address for listener in b.node.listeners)
        async with await Wire.open(*inside) as a, await Wire.open(*outside) as far:
            await far.connect("far")
            await far.subscribe(("dev/#", 0))
            await a.send(raw.connect("a") + raw.publish("t", b"1") + raw.publish("t", b"2"))
            for payload in (b"1", b"2"):
                await far.take_publish("dev/a/t", payload)
