"""What plugins keep, in a store that is divided anew."""

from math import inf
from typing import Any

from tests.broker.resharding.divided import all_rows, divide, holding, home_of
from trunkline.hooks.client import ClientInfo, client_to_plain
from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.plugins.store import PLUGINS, key_in_row, row_key
from trunkline.store import Engine
from trunkline.store.memory import MemoryEngine


def keeping(plugin: str, *, calendar: float = 100.0, **values: Any) -> MemoryEngine:
    held = [(PLUGINS, row_key(plugin, key), pack(value)) for key, value in values.items()]
    return holding(*held, calendar=calendar)


def kept(engine: Engine) -> dict[str, Any]:
    return {"/".join(key_in_row(row)): unpack(value) for row, value in all_rows(engine, PLUGINS)}


def test_what_nobody_knows_goes_to_the_first_part() -> None:
    new = divide(keeping("own", a=1, b=2), keeping("own", b=3, c=4), into=2)
    assert [kept(each) for each in new] == [{"own/a": 1, "own/b": 2, "own/c": 4}, {}]


def test_bans_hold_everywhere_the_later_of_two() -> None:
    first = keeping("bans", a=["first", "command", 10.0, inf], b=["later", "command", 30.0, 90.0])
    second = keeping("bans", a=["second", "command", 20.0, inf], b=["sooner", "command", 25.0, 80.0])
    expected = {"bans/a": ["second", "command", 20.0, inf], "bans/b": ["later", "command", 30.0, 90.0]}
    assert [kept(each) for each in divide(first, second, into=3)] == [expected] * 3


def test_their_moments_are_those_of_the_first_part() -> None:
    (new,) = divide(holding(), keeping("bans", calendar=400, a=["x", "command", 20.0, 30.0]), into=1)
    assert kept(new) == {"bans/a": ["x", "command", 320.0, 330.0]}


def delayed(client_id: str, payload: bytes) -> list[Any]:
    message = message_to_row(Message("t", payload, expires_at=90.0), 0.0)
    return [50.0, 10, client_to_plain(ClientInfo(client_id)), message]


def test_delayed_messages_are_at_the_home_of_their_publisher_and_none_is_lost() -> None:
    clients = [f"c{number}" for number in range(8)]
    former = [
        keeping(
            "delayed-publish",
            calendar=calendar,
            **{f"{number:016}": delayed(each, each.encode()) for number, each in enumerate(some, 1)},
        )
        for calendar, some in ((100.0, clients[:4]), (400.0, clients[4:]))
    ]
    new = divide(*former, into=2)
    for number, engine in enumerate(new):
        found = kept(engine)
        assert [*found] == [f"delayed-publish/{number:016}" for number in range(1, len(found) + 1)]
        messages = {client["client_id"]: (due, message_from_row(row, 0.0)) for due, _, client, row in found.values()}
        assert [*messages] == [each for each in clients if home_of(each, 2) == number]
        for client_id, (due, message) in messages.items():
            lag = 300 * (client_id in clients[4:])
            assert (due, message.expires_at, message.payload) == (50 + lag, 90 + lag, client_id.encode())


def test_owners_of_topics_and_their_conditions_are_at_home() -> None:
    here, there = (next(name for name in "abcdef" if home_of(name, 2) == part) for part in range(2))
    new = divide(keeping("exclusive", t=here, u=there), keeping("exclusive", t=there, v=there), into=2)
    assert [kept(each) for each in new] == [
        {"exclusive/t": here},
        {"exclusive/t": there, "exclusive/u": there, "exclusive/v": there},
    ]
    (one,) = divide(keeping("exclusive", t=here), keeping("exclusive", t=there), into=1)
    assert kept(one) == {"exclusive/t": here}
    new = divide(keeping("message-filter", **{here: 1, there: 2}), into=2)
    assert [kept(each) for each in new] == [{f"message-filter/{here}": 1}, {f"message-filter/{there}": 2}]
