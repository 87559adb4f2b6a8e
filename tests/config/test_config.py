from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.config.problems import problems_of
from trunkline.config.config import Config, changes, dotted, key_paths, variable
from trunkline.config.reader import from_mapping


def test_every_key_has_a_variable() -> None:
    assert variable(("mqtt", "max_qos")) == "TRUNKLINE_MQTT__MAX_QOS"
    names = [variable(path) for path in key_paths()]
    assert len(names) == len(set(names))


def test_a_listener_that_others_reach_needs_a_login(file: Path) -> None:
    (line,) = problems_of({"listeners": ["tcp://192.0.2.1:1883"]})
    assert line.startswith("listeners[0]: other machines can reach tcp://192.0.2.1:1883")
    (line,) = problems_of({"listeners": ["tcp://[::]:1"], "acl": {"no_match": "deny"}})
    assert line.startswith("listeners[0]: other machines can reach")
    (line,) = problems_of({"listeners": ["tcp://[::]:1"], "auth": {"allow_anonymous": False}})
    assert line.startswith("listeners[0]: other machines can reach")
    assert from_mapping({"listeners": ["tcp://[::]:1"], "auth": {"allow_anonymous": True}}).listeners
    assert from_mapping({"listeners": [{"url": "tcp://[::]:1", "allow_anonymous": True}]}).listeners
    file.touch()
    for key in ("password_file", "client_id_file", "scram_file"):
        assert from_mapping({"listeners": ["tcp://[::]:1"], "auth": {key: str(file)}}).listeners


def test_who_may_come_without_credentials(file: Path) -> None:
    file.touch()
    config = Config()
    assert config.allows_anonymous()
    assert config.allows_anonymous(config.listeners[0])
    config = from_mapping({"auth": {"password_file": str(file)}, "listeners": ["tcp://127.0.0.1:1"]})
    assert not config.allows_anonymous(config.listeners[0])
    listeners: list[object] = ["tcp://[::]:1", {"url": "tcp://127.0.0.1:1", "allow_anonymous": False}]
    config = from_mapping({"auth": {"allow_anonymous": True}, "listeners": listeners})
    assert [config.allows_anonymous(listener) for listener in config.listeners] == [True, False]
    assert not from_mapping({"auth": {"allow_anonymous": False}}).allows_anonymous()


def test_keys_that_contradict() -> None:
    assert problems_of({"listeners": ["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"]}) == [
        "listeners[1]: listeners[0] is at tcp://127.0.0.1:1, too"
    ]
    assert problems_of({"listeners": ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]}) == [
        'listeners[1]: listeners[0] is called "tcp://127.0.0.1:0" too: give one a name of its own'
    ]
    assert problems_of({"mqtt": {"server_keep_alive": 60, "max_keep_alive": 30}}) == [
        "mqtt.server_keep_alive: is longer than mqtt.max_keep_alive"
    ]
    for marks, problem in (
        (
            {"memory_high": "2GiB"},
            ["overload.memory_low: must be a share if overload.memory_high is one, and only then"],
        ),
        ({"memory_high": "60%"}, ["overload.memory_low: is more than overload.memory_high"]),
        ({"files_high": 100, "files_low": 101}, ["overload.files_low: is more than overload.files_high"]),
        ({"lag_high": "10ms"}, ["overload.lag_low: is more than overload.lag_high"]),
    ):
        assert problems_of({"overload": marks}) == problem
    assert problems_of({"overload": {"files_high": "101%"}})
    for right_marks in (
        {"memory_high": 0, "files_high": "0", "lag_high": 0},
        {"memory_high": "2GiB", "memory_low": 1_000_000, "files_high": "90.5%", "files_low": "90.5%"},
    ):
        assert from_mapping({"overload": right_marks})
    for store, wrong in (({"durability": "fsync"}, "os"), ({"durability": "os"}, "fsync"), ({}, "fsync")):
        (problem,) = problems_of({"store": store, "listeners": [{"durability": wrong}]})
        assert problem.startswith(f'listeners[0].durability: "{wrong}" is not the level of the store')
    for right in ("memory", "os"):
        assert from_mapping({"store": {"durability": "os"}, "listeners": [{"durability": right}]}).listeners
    with pytest.raises(ValidationError, match=r"other machines can reach tcp://\[::\]:1"):
        Config.model_validate({"listeners": ["tcp://[::]:1"]})


def test_no_listeners_is_a_broker_for_this_process_only() -> None:
    assert from_mapping({"listeners": []}).listeners == ()


def test_dotted() -> None:
    assert dotted(("listeners", 0, "url")) == "listeners[0].url"
    assert dotted(()) == ""


def test_changes() -> None:
    new = from_mapping({"listeners": [], "mqtt": {"max_qos": 1}, "log": {"level": "info"}})
    assert changes(Config(), new) == ["listeners", "mqtt.max_qos"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tcp://127.0.0.1:1883", "tcp://127.0.0.1:1883"),
        ("tcp://127.0.0.1", "tcp://localhost:1883"),
        ("tcp://[::1]:1883", "tcp://localhost:1883"),
        ("tcp://[::1]:1883", "tcp://[0:0::1]:1883"),
        ("tcp://0.0.0.0:1883", "tcp://10.0.0.1:1883"),
        ("tcp://*:1883", "tcp://[::1]:1883"),
        ("tcp://broker.example:1883", "tcp://BROKER.example:1883"),
    ],
)
def test_no_address_is_listened_on_twice(first: str, second: str) -> None:
    listeners = [{"name": "one", "url": first}, {"name": "two", "url": second}]
    table = {"listeners": listeners, "auth": {"allow_anonymous": True}}
    assert problems_of(table) == [f"listeners[1]: listeners[0] takes port 1883 of that address: {first}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("tcp://127.0.0.1:1883", "tcp://127.0.0.1:1884"),
        ("tcp://127.0.0.1:1883", "tcp://127.0.0.2:1883"),
        ("tcp://0.0.0.0:1883", "tcp://[::]:1883"),
        ("tcp://127.0.0.1:1883", "tcp://elsewhere:1883"),
    ],
)
def test_different_addresses(first: str, second: str) -> None:
    listeners = [{"name": "one", "url": first}, {"name": "two", "url": second}]
    from_mapping({"listeners": listeners, "auth": {"allow_anonymous": True}})


def test_what_a_listener_does_not_say_the_general_section_says() -> None:
    listener = {"url": "tcp://127.0.0.1:1", "password_file": __file__}
    config = from_mapping({"listeners": [listener], "auth": {"scram_file": __file__}})
    assert config.credentials_at(config.listeners[0]) == (Path(__file__), None, Path(__file__))
    assert config.credentials_at(None) == (None, None, Path(__file__))
