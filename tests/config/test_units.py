from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from trunkline.config.config import Config
from trunkline.config.fields import field_at
from trunkline.config.units import (
    NEVER,
    Accepts,
    Rate,
    Text,
    accepted,
    from_text,
    parse_duration,
    parse_expiry,
    parse_network,
    parse_path,
    parse_rate,
    parse_size,
    parse_whole_seconds,
    shown,
)


def field(path: tuple[str, ...]) -> FieldInfo:
    found = field_at(Config, path)[1]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(15, 15), (0.5, 0.5), ("15", 15), ("200ms", 0.2), ("15 s", 15), ("1.5m", 90), ("2H", 7200), ("1d", 86400)],
)
def test_duration(written: object, seconds: float) -> None:
    assert abs(parse_duration(written) - seconds) < 1e-9


@pytest.mark.parametrize(
    "written", [-1, True, "", "s", "-1s", "1y", "1e3", None, [], float("nan"), float("inf"), "9e99"]
)
def test_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(written)


def test_whole_seconds_and_never() -> None:
    assert parse_whole_seconds("2m") == 120
    assert parse_expiry("never") == NEVER
    assert parse_expiry("1h") == 3600
    with pytest.raises(ValueError, match="whole"):
        parse_whole_seconds("500ms")


@pytest.mark.parametrize(
    ("written", "size"), [(7, 7), ("7", 7), ("64KiB", 65536), ("1 MiB", 2**20), ("1MB", 10**6), ("1.5KiB", 1536)]
)
def test_size(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", [-1, 1.5, True, "1.5", "1X", "", None])
def test_no_size(written: object) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(written)


def test_path() -> None:
    assert parse_path("a/b") == Path("a/b")
    assert parse_path("") is None
    with pytest.raises(ValueError, match="not a path"):
        parse_path(3)


def test_network_keeps_only_its_prefix() -> None:
    assert parse_network("10.1.2.3/8") == ip_network("10.0.0.0/8")
    assert parse_network("::1") == ip_network("::1/128")
    with pytest.raises(ValueError, match="not an address"):
        parse_network(7)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("mqtt", "max_qos"), "a whole number, 0 to 2"),
        (("mqtt", "retain_available"), "true or false"),
        (("auth", "allow_anonymous"), "true or false"),
        (("mqtt", "keep_alive_multiplier"), "a number, 1.0 to 10.0"),
        (("session", "overflow"), '"drop_oldest" or "drop_new"'),
        (("session", "priorities"), "a table, each key a topic filter, each value a whole number, 1 to 255"),
        (("trace", "topics"), "a list, each a topic filter"),
        (("node", "name"), "text of 1 to 64 characters"),
        (("listeners", 0, "versions"), 'a list of 1 or more entries, each "3.1" or "3.1.1" or "5.0"'),
        (("flapping", "window"), 'seconds, or text such as "15s", "2h", more than 0'),
    ],
)
def test_accepted(path: tuple[str | int, ...], words: str) -> None:
    assert accepted(field(path)) == words


def test_accepted_is_text_of_some_length() -> None:
    class Words(BaseModel):
        word: Text = Field("hello", min_length=2)

    assert accepted(Words.model_fields["word"]) == "text of 2 or more characters"


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        (("mqtt", "max_qos"), "1", 1),
        (("mqtt", "max_qos"), "one", "one"),
        (("mqtt", "keep_alive_multiplier"), "1.75", 1.75),
        (("mqtt", "retain_available"), "Off", False),
        (("auth", "allow_anonymous"), "1", True),
        (("node", "name"), "17", "17"),
        (("session", "overflow"), "drop_new", "drop_new"),
        (("session", "priorities"), '{"a/b" = 7}', {"a/b": 7}),
        (("session", "priorities"), "{", "{"),
        (("listeners",), "tcp://a:1, tcp://b:2", ["tcp://a:1", "tcp://b:2"]),
        (("listeners",), '[{url = "tcp://a:1"}]', [{"url": "tcp://a:1"}]),
        (("listeners",), "", []),
    ],
)
def test_text_of_a_variable(path: tuple[str, ...], text: str, value: object) -> None:
    assert from_text(field(path), text) == value


def test_long_values_are_cut() -> None:
    assert shown("x" * 200) == '"' + "x" * 76 + "..."
    assert shown(True) == "true"


def test_what_a_list_of_words_takes() -> None:
    class Words(BaseModel):
        words: tuple[Literal["one", "two"], ...] = ()

    assert accepted(Words.model_fields["words"]) == 'a list, each "one" or "two"'


def test_a_shaped_rate_has_no_burst() -> None:
    assert parse_rate("10/s shaped") == Rate(10, 1)
    assert parse_rate("5MB/m Shaped") == Rate(5e6 / 60, 1)
    assert parse_rate("10 shaped") == Rate(10, 1)
    assert parse_rate("0 shaped") is None
    for wrong in ("10/shaped", "10/s shaped burst 5", "10/s burst shaped", "shaped"):
        with pytest.raises(ValueError, match="rate"):
            parse_rate(wrong)


def test_a_length_is_told_of_text_alone() -> None:
    class Address(BaseModel):
        url: Annotated[str, Accepts("a URL")] = Field("x", min_length=1)
        word: Text = Field("x", min_length=1)

    assert [accepted(field) for field in Address.model_fields.values()] == ["a URL", "text of 1 or more characters"]
