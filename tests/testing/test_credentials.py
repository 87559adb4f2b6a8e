"""User names and access rules given as values."""

from typing import Any

import pytest

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.errors import ConfigError, SecurityError

RULES = [
    {"permit": "allow", "user": "ada", "topics": ["own/%u/#", {"eq": "#"}]},
    {"permit": "deny"},
]


async def test_users_and_rules_need_no_files() -> None:
    async with testing.broker(users={"ada": "secret", "bob:x": "größe"}, rules=RULES) as b:
        for version in (4, 5):
            wire = Wire(b.connect(), version=version)
            await wire.send(raw.connect("a", version=version, username="ada", password="wrong"))
            assert (await wire.expect_type(raw.CONNACK)).reason in (4, 0x86)
            await wire.abort()
        async with Wire(b.connect()) as ada, Wire(b.connect()) as bob:
            await ada.connect("a", username="ada", password="secret")
            await bob.connect("b", username="bob:x", password="größe")
            assert await ada.subscribe(("own/ada/x", 1), ("own/bob/x", 1), ("#", 1)) == [1, 0x87, 1]
            assert await bob.subscribe(("own/ada/x", 1)) == [0x87]
        await b.restart()
        async with Wire(b.connect()) as ada:
            await ada.connect("a", username="ada", password="secret")
            assert await ada.subscribe(("own/ada/x", 1)) == [1]


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"users": ["ada"]}, TypeError, r"users=\['ada'\]: accepted is a password for each user name, "),
        ({"users": {"ada": 5}}, TypeError, "users: 'ada': accepted is text"),
        ({"users": {"": "x"}}, SecurityError, "users: '' cannot be a user name"),
        ({"users": {"a\nb": "x"}}, SecurityError, r"users: 'a\\nb' cannot be a user name"),
        ({"users": {}, "auth": 3}, ConfigError, "auth: 3: accepted is a table"),
        ({"rules": {"permit": "allow"}}, TypeError, r"rules=\{'permit': 'allow'\}: accepted is a list of rules"),
        ({"rules": ["allow"]}, TypeError, r"rules\[0\] is 'allow': accepted is a table"),
        ({"rules": [*RULES, {"permit": None}]}, TypeError, r"rules\[2\]: .*NoneType"),
        ({"rules": [{"permit": "alow"}]}, SecurityError, r"rules\[0\]: permit: found \"alow\"; accepted: "),
        (
            {"rules": [{"permit": "allow", "topics": [{"eq": "#"}], "qos": 7}, *RULES, {"user": ("a", "b")}]},
            SecurityError,
            r"rules\[0\]: qos: found 7; .*\nrules\[3\]: permit: found nothing",
        ),
    ],
)
async def test_wrong_ones_are_named_as_they_were_given(
    settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=f"^{words}" if kind is not ConfigError else words):
        async with testing.broker(**settings):
            raise AssertionError("it started")


async def test_other_settings_of_the_sections_stay() -> None:
    async with testing.broker(rules=[], acl={"no_match": "deny"}) as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        assert await wire.subscribe(("t", 0)) == [0x87]
