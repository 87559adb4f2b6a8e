"""Formats: the same format through mosquitto_sub and through `trunkline sub` prints the same."""

import itertools
import re
import shutil

import pytest

from tests.management.client_commands.running import command, run
from trunkline.client.received import Origin, ReceivedMessage
from trunkline.management.client_commands.formats import Moment, compiled
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.testing import Broker

MOMENT = Moment(1_600_000_000, 12_345_678)
MESSAGE: Properties = {
    "user_property": (("k", "v"), ("k2", "v2")),
    "content_type": "text/plain",
    "correlation_data": b"abc",
    "response_topic": "re/sp",
    "payload_format_indicator": 1,
    "message_expiry_interval": 99_999,
}


def received(payload: bytes = b"", topic: str = "t", properties: Properties = NO_PROPERTIES) -> ReceivedMessage:
    return ReceivedMessage(topic, payload, Origin(0, False, False, properties), True)


def shown(form: str, payload: bytes = b"", *, terminal: bool = False, **more: object) -> bytes:
    return compiled(form, terminal=terminal)(received(payload, **more), MOMENT)  # type: ignore[arg-type]


def specifications() -> list[str]:
    """All letters with all flags, widths and cuts, but for what Mosquitto 2.0.11 does by accident: it pads a payload
    on the left side alone, counts half of the width of hexadecimal digits, and gives no width to %R without a
    response topic."""
    found: list[str] = []
    widths = ("", "1", "3", "12")
    for letter, flag, width, cut in itertools.product("ACDEFPRSXlpqrtx%", ("", "-", "0", "-0"), widths, ("", ".2")):
        by_accident = (letter in "pxX" and "-" in flag and not width) or (letter in "xX" and width)
        if not by_accident:
            found.append(f"%{flag}{width}{cut}{letter}")
    return found


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto_sub (Debian: mosquitto-clients)")
@pytest.mark.parametrize("properties", [MESSAGE, NO_PROPERTIES], ids=["properties", "none"])
async def test_as_mosquitto_sub(mqtt_broker: Broker, properties: Properties) -> None:
    left_out = () if properties else ("R",)
    wanted = [each for each in specifications() if each[-1] not in left_out]
    form = "\\n".join(f"{each.replace('%', '%%')} <{each}>" for each in wanted) + r"\\ @@ @Y-@z @q \a\e\0\t\v\r"
    mqtt_broker.publish("a/bäö", "hellö\x01".encode(), qos=1, retain=True, properties=properties)
    words = ["-p", str(mqtt_broker.port), "-t", "a/#", "-q", "1", "-C", "1", "-V", "5", "-F", form]
    theirs = await run(["mosquitto_sub", *words])
    ours = await run(command("sub", *words))
    assert (ours.code, ours.err) == (0, "")
    assert _lines(ours.out) == _lines(theirs.out)
    assert ours.out.count(b"\n") > 300


def _lines(shown: bytes) -> list[bytes]:
    """Of the expiry interval, seconds pass between two subscribers."""
    return re.sub(rb"99[0-9]{3}\b", b"99999", shown).split(b"\n")


def test_time() -> None:
    assert shown("%U %I %20U") == b"1600000000.012345678 %b 1600000000.012345678" % _local("%Y-%m-%dT%H:%M:%S%z")
    assert shown("@N") == b"012345678"
    assert shown("%28I|").endswith(b"|")
    assert len(shown("%30I")) == 30


def _local(form: str) -> bytes:
    return MOMENT.local(form).encode()


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("%k", "%k: % takes"),
        ("%m", "packet ids"),
        ("a%", "% is incomplete"),
        ("%5", "%5 is incomplete"),
        ("@", "@ is incomplete"),
        ("\\", "\\ is none of"),
        ("\\q", "\\q is none of \\\\ \\0"),
        ("%99999t", "width is 10000"),
    ],
)
def test_what_is_no_format(form: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        compiled(form)
    assert words in str(caught.value)


def test_a_terminal_gets_no_control_characters_of_a_message() -> None:
    payload = b"one\x1b[2Jtwo\n\tthree\x9b\xc2\x9b\r"
    assert shown("\\e[1m%p\\e[0m", payload, terminal=True) == (b"\x1b[1mone\\x1b[2Jtwo\n\tthree\\x9b\\x9b\\r\x1b[0m")
    assert shown("%p", payload) == payload
    assert (
        shown(
            "%t|%C|%R|%P|%D",
            topic="a\nb",
            terminal=True,
            properties={
                "content_type": "\x1b",
                "response_topic": "\x07",
                "user_property": (("\x08", "x"),),
                "correlation_data": b"\0",
            },
        )
        == b"a\\nb|\\x1b|\\x07|\\x08:x|\\x00"
    )


def test_json_that_is_none_is_reported() -> None:
    problems: list[str] = []
    piece = compiled("<%J>", on_problem=problems.append)
    assert piece(received(b"{", topic="a/b"), MOMENT) == b"<>"
    assert problems == ["the payload on topic a/b is not JSON"]
    assert b'"payload":{"a":1}' in piece(received(b'{ "a" : 1 }'), MOMENT)
