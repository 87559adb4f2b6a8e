"""Zones: settings for the clients of some listeners."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.config import Config
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping

ZONES: dict[str, Any] = {
    "zones": {
        "narrow": {
            "max_qos": 1,
            "retain_available": False,
            "max_packet_size": 1000,
            "receive_maximum": 7,
            "server_keep_alive": 30,
            "max_expiry_interval": 50,
            "max_queue_length": 2,
            "max_inflight": 1,
            "max_subscriptions": 1,
            "max_topic_alias": 0,
        },
    },
    "listeners": [
        {"url": "tcp://127.0.0.1:0", "name": "narrow", "zone": "narrow"},
        {"url": "tcp://127.0.0.1:0", "name": "wide"},
    ],
}


def address(b: testing.Broker, name: str) -> tuple[str, int]:
    return next(listener.address for listener in b.node.listeners if listener.settings.name == name)


def problems(table: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_mapping(table)
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


def test_a_zone_has_what_it_sets_and_else_the_general_settings() -> None:
    config = from_mapping(ZONES | {"session": {"max_queue_length": 9, "max_inflight": 8}, "mqtt": {"max_filters": 3}})
    narrow, wide = map(config.at, config.listeners)
    assert wide is config
    assert (narrow.session.max_queue_length, narrow.session.max_inflight, narrow.mqtt.max_filters) == (2, 1, 3)
    assert config.session.max_queue_length == 9
    # that of the queue follows the packets of the zone
    packets = {
        "zones": {"big": {"max_packet_size": "64MiB"}},
        "listeners": [{"url": "tcp://127.0.0.1:0", "zone": "big"}],
    }
    big = from_mapping(packets)
    assert big.at(big.listeners[0]).queue_bytes == 2 * 64 * 1024 * 1024 > big.queue_bytes
    assert big.largest_queue == (10_000, 2 * 64 * 1024 * 1024)


def test_queues_without_a_limit_are_the_largest() -> None:
    for own, general, largest in ((0, 5, 0), (5, 0, 0), (7, 5, 7)):
        listeners = [{"url": "tcp://127.0.0.1:0", "zone": "z"}]
        zones = {"z": {"max_queue_length": own}}
        config = from_mapping({"zones": zones, "listeners": listeners, "session": {"max_queue_length": general}})
        assert config.largest_queue[0] == largest


def test_mistakes_name_the_zone_and_the_key() -> None:
    assert problems({"zones": {"slow": {"max_qos": 5}}}) == [
        "zones.slow.max_qos: 5: accepted is a whole number, 0 to 2"
    ]
    assert problems({"zones": {"slow": {"max_qoss": 1}}}) == ["zones.slow.max_qoss: unknown key; did you mean max_qos?"]
    listener = {"url": "tcp://127.0.0.1:0", "zone": "slov"}
    assert problems({"zones": {"slow": {}}, "listeners": [listener]}) == [
        "listeners[0].zone: no zone is called 'slov'; did you mean slow?"
    ]
    assert problems({"zones": {"a b": {}, "c": {"max_keep_alive": 5, "server_keep_alive": 9}}}) == [
        'zones."a b": the name of a zone has letters, digits, _ and - only',
        "zones.c: server_keep_alive is longer than max_keep_alive",
    ]


def test_a_dumped_zone_sets_what_it_set() -> None:
    config = from_mapping(ZONES)
    assert Config.model_validate(config.model_dump()).at(config.listeners[0]) == config.at(config.listeners[0])
    assert config.model_dump()["zones"]["narrow"].keys() == ZONES["zones"]["narrow"].keys()


async def test_clients_get_the_settings_of_their_zone() -> None:
    async with testing.broker(**ZONES) as b:
        async with await Wire.open(*address(b, "narrow")) as wire:
            connack = await wire.connect("a", properties=raw.session_expiry(99))
            told = dict(connack.properties)
            assert told[0x24] == 1  # QoS
            assert told[0x25] == 0  # RETAIN
            assert told[0x27] == 1000  # bytes of a packet
            assert told[0x21] == 7  # receive maximum
            assert told[0x13] == 30  # keep-alive
            assert told[0x11] == 50  # session expiry
            assert 0x22 not in told  # topic aliases
            assert await wire.subscribe("a", "b") == [1, 0x97]
            await wire.send(raw.publish("t", qos=2, packet_id=1))
            await wire.expect_disconnect(0x9B)
        async with await Wire.open(*address(b, "narrow")) as wire:
            await wire.connect("b")
            await wire.send(raw.publish("t", bytes(1000)))
            await wire.expect_disconnect(0x95)
        async with await Wire.open(*address(b, "wide")) as wire:
            told = dict((await wire.connect("c", properties=raw.session_expiry(99))).properties)
            assert not told.keys() & {0x24, 0x25, 0x21, 0x13, 0x11}
            assert await wire.subscribe("a", "b") == [2, 2]


async def waiting(b: testing.Broker, came_by: str, left_by: str) -> int:
    """How many of five messages wait for a client that was connected through two listeners."""
    for name in (came_by, left_by):
        async with await Wire.open(*address(b, name)) as wire:
            await wire.connect("s", clean=False, properties=raw.session_expiry(40))
            await wire.subscribe(("t", 1))
        await b.wait_until(lambda: all(each.channel is None for each in inside(b.node).sessions))
    for n in range(5):
        b.publish("t", bytes([n]), qos=1)
    await b.node.ending.quiet()
    session = inside(b.node).sessions.get("s")
    assert session is not None
    return session.session.queue.length


@pytest.mark.parametrize(("came_by", "left_by", "kept"), [("wide", "narrow", 2), ("narrow", "wide", 5)])
async def test_a_session_has_the_limits_of_the_zone_that_its_client_came_by_last(
    came_by: str, left_by: str, kept: int
) -> None:
    async with testing.broker(**ZONES) as b:
        assert await waiting(b, came_by, left_by) == kept


async def test_a_taken_over_session_has_the_window_of_the_new_zone() -> None:
    async with (
        testing.broker(**ZONES) as b,
        await Wire.open(*address(b, "wide")) as old,
        await Wire.open(*address(b, "narrow")) as new,
    ):
        await old.connect("s", clean=False, properties=raw.session_expiry(40))
        await old.subscribe(("t", 1))
        await new.connect("s", clean=False, properties=raw.session_expiry(40))
        for payload in (b"1", b"2"):
            b.publish("t", payload, qos=1)
        first = await new.expect_publish("t", b"1", qos=1)
        await new.ping()  # the window is 1
        await new.acknowledge(first)
        await new.expect_publish("t", b"2", qos=1)


async def test_rates_of_a_zone(autojump_clock: MockClock) -> None:
    zones = {"slow": {"connection_messages": "1/s"}}
    listeners = [
        {"url": "tcp://127.0.0.1:0", "name": "slow", "zone": "slow"},
        {"url": "tcp://127.0.0.1:0", "name": "b"},
    ]
    async with testing.broker(listeners=listeners, zones=zones) as b:
        for name, seconds in (("slow", 9), ("b", 0)):
            async with await Wire.open(*address(b, name)) as wire:
                await wire.connect("p")
                began = trio.current_time()
                for n in range(10):
                    await wire.publish("t", b"", qos=1, packet_id=n + 1)
                assert trio.current_time() - began == pytest.approx(seconds, abs=1)
