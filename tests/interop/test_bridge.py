"""A mosquitto broker that bridges to ours: two brokers hand each other what is published below a prefix."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop import server
from tests.interop.paho_client import VERSIONS, Paho
from tests.interop.server import Broker

VERSIONS_OF_A_BRIDGE: Final = {"v311": "mqttv311", "v5": "mqttv50"}
every_version = pytest.mark.parametrize("version", VERSIONS_OF_A_BRIDGE)
#: Messages each way at each QoS. Mosquitto queues 1,000 for a bridge.
NUMBER: Final = 300

BRIDGE: Final = """\
connection bridge
address {host}:{port}
topic {name}/# both 2
remote_clientid {name}
bridge_protocol_version {version}
try_private true
"""


@pytest.fixture(autouse=True)
def _mosquitto() -> None:
    if server.mosquitto() is None:
        reason = "mosquitto isn't installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@contextlib.contextmanager
def bridged(broker: Broker, name: str, version: str, folder: Path) -> Iterator[tuple[Paho, Paho]]:
    """A client of ours and one of the other broker, each subscribed to everything; the bridge works."""
    lines = BRIDGE.format(host=broker.host, port=broker.port, name=name, version=VERSIONS_OF_A_BRIDGE[version])
    with Paho(broker, name + "-ours", VERSIONS["v5"]) as ours:
        ours.subscribe(name + "/#", 2, retainAsPublished=True)
        ours.publish(name + "/up", b"", 1, retain=True)
        ours.receive()
        with (
            server.running(folder, "mosquitto", lines) as other,
            Paho(other, name + "-theirs", VERSIONS["v5"]) as theirs,
        ):
            ours.publish(name + "/up", b"up", 1, retain=True)
            ours.receive()
            theirs.subscribe(name + "/#", 2, retainAsPublished=True)
            assert theirs.receive().topic == name + "/up"  # retained with us, so the bridge has subscribed
            yield ours, theirs


def until(client: Paho, topic: str) -> list[tuple[str, bytes, int]]:
    """All that it gets before a message of this topic."""
    got = []
    while (message := client.receive()).topic != topic:
        got.append((message.topic, message.payload, message.qos))
    return got


@every_version
@pytest.mark.parametrize("qos", range(3))
def test_each_message_comes_once(broker: Broker, name: str, version: str, qos: int, tmp_path: Path) -> None:
    with bridged(broker, name, version, tmp_path) as (ours, theirs):
        for number in range(NUMBER):
            ours.send(name + "/ours", b"%d" % number, qos)
            theirs.send(name + "/theirs", b"%d" % number, qos)
        # to and fro, so that what comes back where it came from is there before the last of them
        seen_by_ours, seen_by_theirs = [], []
        for turn in range(3):
            theirs.send(f"{name}/{turn}", b"", qos)
            seen_by_ours += until(ours, f"{name}/{turn}")
            ours.send(f"{name}/{turn}-back", b"", qos)
            seen_by_theirs += until(theirs, f"{name}/{turn}-back")
        for seen in (seen_by_ours, seen_by_theirs):
            for side in ("ours", "theirs"):
                expected = [(f"{name}/{side}", b"%d" % number, qos) for number in range(NUMBER)]
                assert [each for each in seen if each[0] == f"{name}/{side}"] == expected


@every_version
def test_what_is_retained_is_retained_on_both_sides(broker: Broker, name: str, version: str, tmp_path: Path) -> None:
    with bridged(broker, name, version, tmp_path) as (ours, theirs):
        for here, there in ((ours, theirs), (theirs, ours)):
            here.publish(name + "/kept", b"kept", 1, retain=True)
            assert [here.receive().payload, there.receive().payload] == [b"kept", b"kept"]
            with Paho(there.broker, name + "-later") as later:
                later.subscribe(name + "/kept", 1)
                message = later.receive()
                assert (message.payload, message.retain) == (b"kept", True)
            here.publish(name + "/kept", b"", 1, retain=True)
            assert [here.receive().payload, there.receive().payload] == [b"", b""]
            with Paho(there.broker, name + "-later") as later:
                later.subscribe(name + "/kept", 1)
                later.assert_nothing_before(name + "-fence")


@every_version
def test_a_bridge_says_whether_it_is_connected(broker: Broker, name: str, version: str, tmp_path: Path) -> None:
    state = f"$SYS/broker/connection/{name}/state"
    with Paho(broker, name + "-watches", VERSIONS["v5"]) as watching:
        with bridged(broker, name, version, tmp_path):
            watching.subscribe(state, 1)
            message = watching.receive()
            assert (message.topic, message.payload, message.retain) == (state, b"1", True)
        message = watching.receive()  # its will, as it goes without a word
        assert (message.topic, message.payload) == (state, b"0")
    assert f"topic {state})" not in "".join(
        line for line in broker.log.read_text().splitlines(keepends=True) if "not authorized" in line
    )
