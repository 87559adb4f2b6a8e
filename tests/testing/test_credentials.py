"""User names and access rules given as values."""

import pytest

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.errors import SecurityError

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
    with pytest.raises(SecurityError, match="permit"):
        async with testing.broker(rules=[{"permit": "perhaps"}]):
            raise AssertionError("it started")


async def test_other_settings_of_the_sections_stay() -> None:
    async with testing.broker(rules=[], acl={"no_match": "deny"}) as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        assert await wire.subscribe(("t", 0)) == [0x87]
