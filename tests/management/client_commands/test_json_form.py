"""Messages as JSON."""

import json
import shutil
from typing import Any

import pytest

from tests.management.client_commands.running import command, run
from tests.management.client_commands.test_formats import MESSAGE, received
from trunkline.management.client_commands.json_form import NotJson, PayloadForm, as_json
from trunkline.testing import Broker


def table(payload: bytes, form: PayloadForm = "any", **more: Any) -> dict[str, Any]:
    data = as_json(received(payload, **more), "now", form)
    assert b"\n" not in data
    found: dict[str, Any] = json.loads(data)
    return found


@pytest.mark.parametrize(
    ("payload", "encoding", "value"),
    [
        (b"hello", "text", "hello"),
        (b"", "text", ""),
        (b'{"a": [1, 2.5, null]}', "json", {"a": [1, 2.5, None]}),
        (b'"hello"', "json", "hello"),
        (b"27.5", "json", 27.5),
        (b"NaN", "text", "NaN"),
        (b"1e999", "text", "1e999"),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b"\xff\x00", "base64", "/wA="),
    ],
)
def test_a_payload_as_what_it_is(payload: bytes, encoding: str, value: object) -> None:
    found = table(payload)
    assert (found["payload_encoding"], found["payload"]) == (encoding, value)
    assert found["payloadlen"] == len(payload)


def test_a_payload_as_text() -> None:
    assert table(b'{"a":1}', "text")["payload"] == '{"a":1}'
    assert "payload_encoding" not in table(b"27", "text")
    assert table(b"\xff", "text")["payload_encoding"] == "base64"


def test_a_payload_that_must_be_json() -> None:
    assert table(b"27", "json")["payload"] == 27
    for payload in (b"", b"{", b"\xff"):
        with pytest.raises(NotJson):
            table(payload, "json")


def test_nothing_can_control_a_terminal() -> None:
    payload = "\x1b\x7f\x9b\u2028\u202e\ufeff"
    data = as_json(received(payload.encode(), topic="\x85"), "now", "text")
    assert data.isascii()
    assert b"\x1b" not in data
    assert json.loads(data)["payload"] == payload


def test_properties() -> None:
    found = table(b"", properties={"user_property": (("a", "1"), ("b", "2"), ("a", "3"), ("a", "4"))})
    assert found["properties"] == {"user-properties": {"a": ["1", "3", "4"], "b": "2"}}
    found = table(b"", properties={"correlation_data": b"\xff", "subscription_identifier": [7]})
    assert found["properties"] == {
        "correlation-data-encoding": "base64",
        "correlation-data": "/w==",
        "subscription-identifier": 7,
    }
    assert table(b"", properties={"subscription_identifier": [7, 8]})["properties"]["subscription-identifier"] == [7, 8]


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto_sub (Debian: mosquitto-clients)")
@pytest.mark.parametrize("letter", ["j", "J"])
async def test_as_mosquitto_sub(mqtt_broker: Broker, letter: str) -> None:
    """But for the packet id and the form of the time, which is no ISO 8601 there. The expiry counts down."""
    payload = '{"a": [1, 2.5, true, null], "b": "ü \\u00fc \\" \\\\"}'.encode()
    mqtt_broker.publish("a/b", payload, qos=1, retain=True, properties=MESSAGE)
    words = ["-p", str(mqtt_broker.port), "-t", "a/#", "-q", "1", "-C", "1", "-V", "5", "-F", f"%{letter}"]
    theirs = json.loads((await run(["mosquitto_sub", *words])).out)
    ours = json.loads((await run(command("sub", *words))).out)
    del theirs["mid"]
    assert theirs.pop("tst")[:10] == ours.pop("tst")[:10]
    assert ours["properties"].pop("message-expiry-interval") <= theirs["properties"].pop("message-expiry-interval")
    assert ours == theirs
