import pytest

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.aliases import ReceivedAliases, SentAliases


def test_an_alias_stands_for_the_topic_that_came_with_it_last() -> None:
    aliases = ReceivedAliases(2)
    assert aliases.resolve(1, "a") == "a"
    assert aliases.resolve(2, "b") == "b"
    assert [aliases.resolve(1, ""), aliases.resolve(2, "")] == ["a", "b"]
    assert aliases.resolve(1, "c") == aliases.resolve(1, "") == aliases[1] == "c"


def test_an_alias_that_was_not_set_is_an_error() -> None:
    aliases = ReceivedAliases(2)
    assert not aliases[2]
    with pytest.raises(ProtocolError, match="alias 2 was not set"):
        aliases.resolve(2, "")


def test_no_alias_is_above_the_maximum() -> None:
    with pytest.raises(ProtocolError, match="alias 3 is above 2") as error:
        ReceivedAliases(2).resolve(3, "a")
    assert error.value.reason == Reason.TOPIC_ALIAS_INVALID


def test_the_first_topics_get_an_alias_and_keep_it() -> None:
    aliases = SentAliases(2)
    assert aliases.find("a") == aliases.find("b") == (1, False)  # nothing was sent yet
    aliases.set("a", 1)
    assert [aliases.find("a"), aliases.find("b")] == [(1, True), (2, False)]
    aliases.set("b", 2)
    assert [aliases.find(topic) for topic in "abc"] == [(1, True), (2, True), (0, False)]
    assert [aliases.topic(alias) for alias in (1, 2, 3)] == ["a", "b", ""]


def test_a_peer_that_allows_none_gets_none() -> None:
    assert SentAliases().find("a") == (0, False)
