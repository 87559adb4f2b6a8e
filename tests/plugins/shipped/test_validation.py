"""Payloads that must have a form."""

import json
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import trio
from paho.mqtt.reasoncodes import ReasonCode

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping, load
from trunkline.plugins import PluginError
from trunkline.plugins.finding import settings_model

INVALID = 0x99


def plugin(*rules: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"validation": {"rules": list(rules), **settings}}


def number(folder: Path) -> str:
    file = folder / "number.json"
    file.write_text('{"type": "object", "properties": {"v": {"type": "number"}}, "required": ["v"]}')
    return str(file)


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.validation.{name}"]


async def reason(wire: Wire, topic: str, payload: bytes, **settings: Any) -> int | None:
    answer = await wire.publish(topic, payload, qos=1, **settings)
    assert answer is not None
    return answer.reason


async def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with room(plugins=plugin({"topics": ["s/+"], "schema_file": number(tmp_path)})) as here:
        listener = await here.client("listener")
        await listener.subscribe(("#", 0))
        wire = await here.client("c")
        assert await reason(wire, "s/1", b'{"v": 1}') == 0
        await wire.send(raw.publish("s/1", b'{"v": "x"}', qos=1, packet_id=9))
        puback = await wire.expect_type(raw.PUBACK)
        assert puback.reason == INVALID
        assert b'$.v: type "number"' in puback.data
        for payload in (b"", b"{", b"\xff", b"NaN", b'{"v": Infinity}', b"[" * 50_000, b'"' + b"x" * 300_000 + b'"'):
            assert await reason(wire, "s/1", payload) == INVALID
        assert await reason(wire, "other", b"{") == 0
        await listener.take_publish("s/1", b'{"v": 1}')
        await listener.take_publish("other", b"{")
        await listener.expect_nothing()
        assert (figure(here, "checked"), figure(here, "refused")) == (9, 8)


async def test_an_older_client_is_not_told(tmp_path: Path) -> None:
    async with room(plugins=plugin({"topics": ["#"], "content": "json"})) as here:
        listener = await here.client("listener")
        await listener.subscribe("#")
        wire = await here.client("c", version=4)
        assert await reason(wire, "t", b"{") == 0
        await listener.expect_nothing(after=wire)


@pytest.mark.parametrize(
    ("content", "payload", "right"),
    [
        ("utf8", "é".encode(), True),
        ("utf8", b"\xe9", False),
        ("utf8", b"", True),
        ("json", b" [1, 2] ", True),
        ("json", b"", False),
        ("json", b"[1,]", False),
        ("json", b"\xff", False),
        ("any", b"\xff", True),
    ],
)
async def test_forms(content: str, payload: bytes, right: bool) -> None:
    async with room(plugins=plugin({"topics": ["#"], "content": content})) as here:
        wire = await here.client("c")
        assert (await reason(wire, "t", payload) != INVALID) is right


async def test_sizes() -> None:
    async with room(plugins=plugin({"topics": ["#"], "max_size": 3})) as here:
        wire = await here.client("c")
        assert await reason(wire, "t", b"123") != INVALID
        assert await reason(wire, "t", b"1234") == INVALID


async def test_a_dropped_message_vanishes() -> None:
    async with room(plugins=plugin({"topics": ["#"], "content": "json", "on_failure": "drop"})) as here:
        wire = await here.client("c")
        await wire.subscribe("t")
        assert await reason(wire, "t", b"{") in (0, 0x10)
        await wire.expect_nothing()
        assert figure(here, "dropped") == 1


async def test_one_that_passes_is_counted_and_the_next_rule_asked() -> None:
    rules = (
        {"topics": ["#"], "content": "json", "on_failure": "pass"},
        {"topics": ["strict/#"], "max_size": 3},
    )
    async with room(plugins=plugin(*rules)) as here:
        wire, listener = await here.client("c"), await here.client("d")
        await listener.subscribe(("#", 0))
        assert await reason(wire, "t", b"{") == 0
        await listener.take_publish("t", b"{")
        assert await reason(wire, "strict/t", b"{{{{") == INVALID
        assert (figure(here, "passed"), figure(here, "refused")) == (2, 1)


async def test_failures_can_be_followed() -> None:
    rules = (
        {"topics": ["a"], "content": "json", "on_failure": "pass"},
        {"topics": ["b", "reports"], "content": "utf8"},
    )
    async with room(plugins=plugin(*rules, report_topic="reports")) as here:
        operator = await here.client("operator")
        await operator.subscribe(("reports", 0))
        wire = await here.client("c")
        await wire.publish("a", b'{"secret', qos=1)
        await wire.publish("b", b"\xff", qos=1)
        reports = [json.loads((await operator.expect_type(raw.PUBLISH)).payload) for _ in range(2)]
    assert [(report["topic"], report["clientid"], report["rule"], report["action"]) for report in reports] == [
        ("a", "c", 0, "pass"),
        ("b", "c", 1, "refuse"),
    ]
    assert reports[0]["problem"] == "the payload is not JSON at line 1, column 2"
    assert reports[1]["problem"] == "the payload is not UTF-8 text, from byte 0 on"
    assert reports[0]["timestamp"] > 1_600_000_000_000


async def test_a_retained_message_can_be_taken_away(tmp_path: Path) -> None:
    async with room(plugins=plugin({"topics": ["#"], "schema_file": number(tmp_path)})) as here:
        wire = await here.client("c")
        await wire.publish("t", b'{"v": 1}', qos=1, retain=True)
        assert await reason(wire, "t", b"", retain=True) != INVALID
        assert len(here.broker.retained) == 0


async def test_a_real_client() -> None:
    async with room(plugins=plugin({"topics": ["t"], "content": "json"})) as here:

        def session() -> int:
            codes = list[ReasonCode]()
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5)
            client.on_publish = lambda client, data, mid, code, properties: codes.append(code)
            client.connect(here.broker.host, here.broker.port)
            client.publish("t", "{", qos=1)
            while not codes:
                client.loop()
            client.disconnect()
            return int(codes[0].value)

        assert await trio.to_thread.run_sync(session) == INVALID


async def test_a_schema_that_has_changed_since_the_configuration_was_read(tmp_path: Path) -> None:
    config = from_mapping({"plugins": plugin({"topics": ["#"], "schema_file": number(tmp_path)})}, settings_model)
    (tmp_path / "number.json").write_text("{")
    async with room() as here:
        with pytest.raises(PluginError, match=r"number.json, line 1: not JSON"):
            await here.admin.plugins.enable("validation", config.plugins["validation"])


def test_schema_files_stand_beside_the_configuration(tmp_path: Path) -> None:
    number(tmp_path)
    file = tmp_path / "trunkline.toml"
    file.write_text('[[plugins.validation.rules]]\ntopics = ["s/#"]\nschema_file = "number.json"\n')
    (rule,) = load(file, {}, find_plugin=settings_model).config.plugins["validation"].rules  # type: ignore[attr-defined]
    assert rule.schema_file == tmp_path / "number.json"
    (tmp_path / "number.json").write_text('{\n"type": "numbr"\n}')
    with pytest.raises(ConfigError, match=r"rules\[0\].schema_file: .*number.json, line 2: type: 'numbr' is not valid"):
        load(file, {}, find_plugin=settings_model)
    (tmp_path / "number.json").unlink()
    with pytest.raises(ConfigError, match=r"rules\[0\].schema_file: no file .*number.json"):
        load(file, {}, find_plugin=settings_model)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rules": [{}]}, r"rules\[0\].topics: is missing"),
        ({"rules": [{"topics": []}]}, r"rules\[0\].topics: "),
        ({"rules": [{"topics": ["a#"]}]}, r"rules\[0\].topics\[0\]: '#' is not alone"),
        ({"rules": [{"topics": ["a"], "content": "xml"}]}, 'content: "xml": accepted is "any" or "utf8" or "json"'),
        (
            {"rules": [{"topics": ["a"], "on_failure": "log"}]},
            'on_failure: "log": accepted is "refuse" or "drop" or "pass"',
        ),
        ({"report_topic": "a/#"}, "report_topic: "),
    ],
)
def test_what_cannot_be_configured(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping({"plugins": {"validation": settings}}, settings_model)
