import pytest

from trunkline.broker.nats.levels import is_too_high, with_level


@pytest.mark.parametrize(
    ("said", "too_high"),
    [
        ("0", False),
        ("1", False),
        ("", False),
        ("-1", False),
        ("2", False),
        ("3", True),
        ("77", True),
        ("x", True),
        ("1.5", True),
    ],
)
def test_which_level_a_request_may_need(said: str, too_high: bool) -> None:
    assert is_too_high(b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n" % said.encode()) is too_high


def test_most_need_none() -> None:
    assert not is_too_high(b"")
    assert not is_too_high(b"NATS/1.0\r\na: Nats-Required-Api-Level\r\n\r\n")
    assert not is_too_high(b"Nats-Required-Api-Level")


def test_a_configuration_says_its_level_beside_what_its_maker_has_said() -> None:
    assert with_level({"name": "s"}, 0)["metadata"] == {
        "_nats.ver": "2.12.0",
        "_nats.level": "2",
        "_nats.req.level": "0",
    }
    config = {"name": "s", "metadata": {"a": "b"}}
    assert with_level(config, 1) == {
        "name": "s",
        "metadata": {"a": "b", "_nats.ver": "2.12.0", "_nats.level": "2", "_nats.req.level": "1"},
    }
    assert config == {"name": "s", "metadata": {"a": "b"}}
