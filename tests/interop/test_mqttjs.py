"""MQTT.js: node/scenarios.mjs does things and prints what it saw."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.server import Broker, differs

NODE: Final = Path(__file__).parent / "node"


def need_node(package: str) -> None:
    """Skips where it is not installed; where everything is to be tried, that is a failure."""
    reason = None
    if shutil.which("node") is None:
        reason = "node isn't installed"
    elif not (NODE / "node_modules" / package).is_dir():
        reason = f"{package} isn't installed: run `npm install` in {NODE}"
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _node() -> None:
    need_node("mqtt")


def play(broker: Broker, scenario: str, name: str, version: int, *numbers: int) -> Any:
    done = subprocess.run(
        ["node", str(NODE / "scenarios.mjs"), scenario, broker.url, name, str(version), *map(str, numbers)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


every_version = pytest.mark.parametrize("version", [3, 4, 5])
newer_versions = pytest.mark.parametrize("version", [4, 5])


@every_version
def test_delivery(broker: Broker, name: str, version: int) -> None:
    assert play(broker, "delivery", name, version) == [
        [wanted, wanted, qos, str(qos), min(wanted, qos)] for wanted in range(3) for qos in range(3)
    ]


@every_version
def test_retained(broker: Broker, name: str, version: int) -> None:
    first, cleared = play(broker, "retained", name, version)
    assert (first["payload"], first["retain"], first["qos"]) == ("kept", True, 1)
    assert (cleared["payload"], cleared["retain"]) == ("", False)


@every_version
def test_resume(broker: Broker, name: str, version: int) -> None:
    result = play(broker, "resume", name, version)
    if version != 3:
        assert result["present"]
    for qos in (1, 2):  # across the two there is no order: MQTT.js hands out QoS 2 at PUBREL
        assert [number for got, number in result["payloads"] if got == qos] == list(range(qos - 1, 20, 2))


@every_version
def test_will(broker: Broker, name: str, version: int) -> None:
    message = play(broker, "will", name, version)
    assert (message["payload"], message["qos"], message["retain"]) == ("gone", 1, False)


@every_version
def test_takeover(broker: Broker, name: str, version: int) -> None:
    differs(broker, "closes so abruptly that the DISCONNECT is lost")
    result = play(broker, "takeover", name, version)
    assert result["reason"] == (0x8E if version == 5 else None)


@every_version
@pytest.mark.parametrize("at_once", [60, 3000])
def test_burst(broker: Broker, name: str, version: int, at_once: int) -> None:
    """MQTT.js sends all that it is given at once: 3.x brokers cannot tell it a limit, those of 5.0 it does not heed."""
    if at_once > 100:
        differs(broker, "drops QoS 2 messages beyond its window")
    assert play(broker, "burst", name, version, 3000, at_once) == [list(range(qos, 3000, 3)) for qos in range(3)]


@every_version
def test_large(broker: Broker, name: str, version: int) -> None:
    assert play(broker, "large", name, version) == {"size": 960_000, "same": True}


@newer_versions
def test_no_message_is_lost_when_the_connection_is_cut(broker: Broker, name: str, version: int) -> None:
    assert play(broker, "reconnects", name, version) == 100


@newer_versions
def test_shared_subscription(broker: Broker, name: str, version: int) -> None:
    shares = play(broker, "shared", name, version)
    assert sorted(shares[0] + shares[1]) == list(range(20))
    assert all(shares)


def test_properties(broker: Broker, name: str) -> None:
    properties = play(broker, "properties", name, 5)["properties"]
    assert 58 <= properties.pop("messageExpiryInterval") <= 60
    assert properties == {
        "payloadFormatIndicator": True,
        "contentType": "application/json",
        "responseTopic": name + "/answer",
        "correlationData": [0, 1, 255],
        "userProperties": {"a": ["1", "2"], "é": "ü"},
        "subscriptionIdentifier": 7,
    }


def test_topic_aliases_both_ways(broker: Broker, name: str) -> None:
    result = play(broker, "aliases", name, 5)
    assert result["got"] == [[f"/{number % 2}", str(number)] for number in range(6)]
    assert result["sent"][:2] == ["/0", "/1"]
    assert result["sent"][2:] == [""] * 4
    differs(broker, "sends no aliases")
    assert [topic for topic, _ in result["wire"]] == ["/0", "/1", "", "", "", ""]
    assert len({alias for _, alias in result["wire"]}) == 2


def test_reason_codes(broker: Broker, name: str) -> None:
    result = play(broker, "refused", name, 5)
    assert result["granted"] == [2]
