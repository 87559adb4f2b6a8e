"""faults: what each word does, once or always, and what is not understood."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import gmqtt
import pytest
import trio
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from trio.testing import MockClock, wait_all_tasks_blocked

from tests import outside_loop
from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.plugins.finding import settings_model


@asynccontextmanager
async def faulty(**settings: Any) -> AsyncIterator[Room]:
    async with room(plugins={"faults": settings}) as here:
        yield here


def fault(request_id: str = "", **words: object) -> bytes:
    asked = {f"fault:{word}": str(value) for word, value in words.items()}
    if request_id:
        asked["fault:requestid"] = request_id
    return b"".join(raw.user_property(*pair) for pair in asked.items())


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.faults.{name}"]


async def refused(here: Room, properties: bytes, **more: Any) -> int:
    """The reason code of the CONNACK."""
    wire = here.wire()
    await wire.send(raw.connect("a", properties=properties, **more))
    connack = await wire.expect_type(raw.CONNACK)
    if connack.reason:
        await wire.expect_close()
    return connack.reason


async def test_nobody_has_it_without_asking_and_the_log_warns(caplog: pytest.LogCaptureFixture) -> None:
    async with room() as here:
        assert await refused(here, fault(rejectconnect=0x89)) == 0
    assert not caplog.records or "never for production" not in caplog.text
    async with faulty():
        pass
    (record,) = [record for record in caplog.records if record.name == "trunkline.plugins.faults"]
    assert (record.levelno, "never for production" in record.getMessage()) == (logging.WARNING, True)


async def test_reject_a_connect() -> None:
    async with faulty() as here:
        assert await refused(here, fault(rejectconnect=0x89)) == 0x89
        assert await refused(here, fault(rejectconnect=0x89)) == 0x89
        # with a request id it goes wrong once
        assert await refused(here, fault("one", rejectconnect=0x88)) == 0x88
        assert await refused(here, fault("one", rejectconnect=0x88)) == 0
        assert await refused(here, fault("two", rejectconnect=0x88)) == 0x88
        method = raw.authentication_method("SCRAM-SHA-256") + raw.authentication_data(b"x")
        assert await refused(here, method + fault(rejectconnect=0x97)) == 0x97
        assert figure(here, "injected") == 5


@pytest.mark.parametrize("qos", [1, 2])
async def test_reject_a_publish(qos: int) -> None:
    async with faulty() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        for expected in (0x97, 0x97):
            answer = await client.publish("t", b"x", qos=qos, properties=fault(rejectpublish=0x97))
            assert answer is not None
            assert answer.reason == expected
        once = fault("id", rejectpublish=0x87)
        codes = [(await client.publish("t", b"x", qos=qos, properties=once)).reason for _ in range(2)]  # type: ignore[union-attr]
        assert codes == [0x87, 0]
        packet = await watcher.take_publish("t", b"x", qos=qos)
        assert ("fault:requestid", "id") in packet.all(raw.USER_PROPERTY)  # as it was published
        await client.publish("t", b"x", properties=fault(rejectpublish=0x97))  # at QoS 0 it is lost
        await watcher.expect_nothing(after=client)


async def test_reject_a_subscribe_and_an_unsubscribe() -> None:
    async with faulty() as here:
        client = await here.client("a")
        assert await client.subscribe("t", "u", properties=fault(rejectsubscribe=0x97)) == [0x97, 0x97]
        once = fault("id", rejectsubscribe=0x80)
        assert await client.subscribe("t", "u", properties=once) == [0x80, 0x80]  # the whole packet
        assert await client.subscribe("t", "u", properties=once) == [2, 2]
        once = fault("id", rejectunsubscribe=0x83)  # ids of different packets are different
        for expected in ([0x83, 0x83], [0, 0]):
            await client.send(raw.unsubscribe(3, "t", "u", properties=once))
            assert (await client.expect_type(raw.UNSUBACK)).reasons == expected


def packets(properties: bytes) -> dict[str, bytes]:
    return {
        "publish": raw.publish("t", b"x", qos=1, packet_id=7, properties=properties),
        "exactly": raw.publish("t", b"x", qos=2, packet_id=7, properties=properties),
        "subscribe": raw.subscribe(7, ("t", 0), ("u", 0), properties=properties),
        "unsubscribe": raw.unsubscribe(7, "t", "u", properties=properties),
    }


@pytest.mark.parametrize("kind", packets(b""))
async def test_disconnect_before_the_acknowledgement(kind: str) -> None:
    async with faulty() as here:
        watcher = await here.client("w")
        await watcher.subscribe("#")
        client = await here.stay("a", will=raw.Will("gone"))
        await client.send(packets(fault("id", disconnect=0x98))[kind])
        await client.expect_disconnect(0x98)  # and nothing before
        await watcher.take_publish("gone", b"gone")  # not the message
        assert here.session("a").session.subscriptions == {}
        client = await here.stay("a")
        await client.send(packets(fault("id", disconnect=0x98))[kind])
        assert (await client.receive()).packet_id == 7
        assert figure(here, "injected") == 1


@pytest.mark.parametrize("kind", packets(b""))
async def test_disconnect_after_a_delay_with_the_acknowledgement(kind: str, autojump_clock: MockClock) -> None:
    async with faulty() as here:
        client = await here.client("a")
        began = trio.current_time()
        await client.send(packets(fault(disconnect=0x8B, delay=30))[kind])
        answer = await client.receive()
        assert (answer.packet_id, answer.type == raw.DISCONNECT) == (7, False)
        await client.expect_disconnect(0x8B)
        assert trio.current_time() == pytest.approx(began + 30)


async def test_a_delayed_disconnect_is_for_the_connection_that_asked(autojump_clock: MockClock) -> None:
    async with faulty() as here:
        client = await here.client("a")
        await client.publish("t", qos=1, properties=fault(disconnect=0x98, delay=30))
        await client.publish("t", qos=1, properties=fault(disconnect=0x8B, delay=20))  # the first to come counts
        await client.publish("t", qos=1, properties=fault(disconnect=0x89, delay=25))
        began = trio.current_time()
        await client.expect_disconnect(0x8B)
        assert trio.current_time() == pytest.approx(began + 20)
        client = await here.client("a")
        await client.publish("t", qos=1, properties=fault(disconnect=0x98, delay=30))
        await client.disconnect()
        client = await here.client("a")
        await trio.sleep(100)
        await client.ping()


async def test_what_it_does_not_touch() -> None:
    async with faulty() as here:
        client = await here.client("a", properties=fault(delay=3))
        extra = raw.user_property("fault", "x") + raw.user_property("other", "fault:disconnect")
        assert (await client.publish("t", qos=1, properties=extra)).reason == 0x10  # type: ignore[union-attr]
        assert (await client.publish("t", qos=1, properties=fault(delay=3))).reason == 0x10  # type: ignore[union-attr]
        # a word for another packet
        assert (await client.publish("t", qos=1, properties=fault(rejectsubscribe=0x80))).reason == 0x10  # type: ignore[union-attr]
        assert await client.subscribe("t", properties=fault("x")) == [2]
        assert (figure(here, "injected"), figure(here, "ignored")) == (0, 0)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (fault(rejectpublish="0x97"), "fault:rejectpublish '0x97' is not a reason code that a PUBACK can have here"),
        (fault(rejectpublish=0x10), "fault:rejectpublish '16' is not a reason code"),  # nothing is rejected by it
        (fault(rejectpublish=0x8B), "fault:rejectpublish '139' is not a reason code"),
        (fault(disconnect=""), "fault:disconnect '' is not a reason code that a DISCONNECT can have here"),
        (fault(disconnect=0x8A), "fault:disconnect '138' is not a reason code"),
        (fault(disconnect="9" * 5000), f"fault:disconnect '{'9' * 50}' is not a reason code"),
        (fault(disconnect=0x98, delay="soon"), "fault:delay 'soon' is not a whole number of 0 to 60 seconds"),
        (fault(disconnect=0x98, delay=61), "fault:delay '61' is not a whole number of 0 to 60 seconds"),
        (fault("x" * 257, disconnect=0x98), "its fault:requestid is longer than 256 characters"),
    ],
)
async def test_what_is_not_understood_does_nothing_but_warn(
    properties: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with faulty(max_delay=60) as here:
        client = await here.client("a")
        await client.subscribe("t")
        await client.send(raw.publish("t", b"x", properties=properties))
        await client.expect_publish("t", b"x")
        assert (figure(here, "injected"), figure(here, "ignored")) == (0, 1)
    assert f"no fault: {why}" in caplog.text


async def test_so_many_request_ids_are_remembered() -> None:
    async with faulty(max_request_ids=2) as here:
        client = await here.client("a")

        async def publish(request_id: str) -> int:
            answer = await client.publish("t", qos=1, properties=fault(request_id, rejectpublish=0x97))
            assert answer is not None
            return answer.reason

        assert [await publish(name) for name in ("1", "2", "1", "3", "2", "1")] == [0x97, 0x97, 0x10, 0x97, 0x10, 0x97]


async def test_what_had_its_fault_stays_so_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty() as here:
        plugins, client = here.admin.plugins, await here.client("a")
        once = fault("id", rejectpublish=0x97)
        assert (await client.publish("t", qos=1, properties=once)).reason == 0x97  # type: ignore[union-attr]
        current = plugins._plugins["faults"].current  # type: ignore[attr-defined]
        assert current is not None
        current.call_at(0, lambda: 1 / 0)
        await wait_all_tasks_blocked()
        assert (await client.publish("t", qos=1, properties=once)).reason == 0x10  # type: ignore[union-attr]
        always = fault(rejectpublish=0x97)
        assert (await client.publish("t", qos=1, properties=always)).reason == 0x97  # type: ignore[union-attr]
        await plugins.disable("faults")
        assert (await client.publish("t", qos=1, properties=always)).reason == 0x10  # type: ignore[union-attr]
    assert "ZeroDivisionError" in caplog.text


def test_wrong_settings() -> None:
    for key, value, text in (("max_delay", "late", '"15s"'), ("max_request_ids", 0, "a whole number, 1 or more")):
        with pytest.raises(ConfigError) as caught:
            from_mapping({"plugins": {"faults": {key: value}}}, settings_model)
        assert f"plugins.faults.{key}: " in str(caught.value)
        assert text in str(caught.value)


async def test_a_paho_client_that_comes_back() -> None:
    """The message whose acknowledgement never came is sent again by itself, and then all is well."""
    seen: list[str] = []
    async with faulty() as here:
        watcher = await here.client("w")
        await watcher.subscribe("t")

        def work() -> None:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="p", protocol=paho.MQTTv5)
            asked = Properties(PacketTypes.PUBLISH)
            asked.UserProperty = [("fault:disconnect", "152"), ("fault:requestid", "once")]
            staying = Properties(PacketTypes.CONNECT)
            staying.SessionExpiryInterval = 100

            def on_connect(client: paho.Client, *_: Any) -> None:
                seen.append("connected")
                if len(seen) == 1:
                    client.publish("t", "x", qos=1, properties=asked)

            def on_publish(client: paho.Client, *_: Any) -> None:
                seen.append("published")
                client.disconnect()

            client.on_connect, client.on_publish = on_connect, on_publish
            client.on_disconnect = lambda _c, _d, _f, reason, _p: seen.append(str(reason))
            client.reconnect_delay_set(0, 0)
            client.connect(here.broker.host, here.broker.port, clean_start=False, properties=staying)
            client.loop_forever()

        await trio.to_thread.run_sync(work)
        await watcher.take_publish("t", b"x", qos=1)
        await watcher.expect_nothing()
    assert seen == ["connected", "Administrative action", "connected", "published", "Normal disconnection"]


def test_a_gmqtt_client_that_is_refused() -> None:
    async def use(host: str, port: int) -> None:
        client = gmqtt.Client("g", user_property=[("fault:rejectconnect", "137")])
        client.set_config({"reconnect_retries": 0})
        with pytest.raises(gmqtt.mqtt.handler.MQTTConnectError, match="137"):
            await client.connect(host, port)

    async def serve() -> None:
        async with faulty() as here:
            await trio.to_thread.run_sync(outside_loop.run, use(here.broker.host, here.broker.port))

    trio.run(serve)
