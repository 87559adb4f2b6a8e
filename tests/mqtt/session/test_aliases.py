import pytest

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.aliases import ReceivedAliases, SentAliases


def read(aliases: ReceivedAliases, alias: int, topic: str = "") -> str:
    packet = Publish(topic, b"", 0, properties={"topic_alias": alias})
    aliases.read(packet)
    assert packet.properties == NO_PROPERTIES
    return packet.topic


def test_an_alias_stands_for_the_topic_that_came_with_it_last() -> None:
    aliases = ReceivedAliases(2)
    assert [read(aliases, 1, "a"), read(aliases, 2, "b"), read(aliases, 1), read(aliases, 2)] == ["a", "b", "a", "b"]
    assert read(aliases, 1, "c") == read(aliases, 1) == aliases[1] == "c"


def test_an_alias_that_was_not_set_is_an_error() -> None:
    aliases = ReceivedAliases(2)
    assert not aliases[2]
    with pytest.raises(ProtocolError, match="alias 2 was not set"):
        read(aliases, 2)


def test_no_alias_is_above_the_maximum() -> None:
    with pytest.raises(ProtocolError, match="alias 3 is above 2") as error:
        read(ReceivedAliases(2), 3, "a")
    assert error.value.reason == Reason.TOPIC_ALIAS_INVALID


def test_what_is_read_has_its_topic_and_no_alias() -> None:
    aliases = ReceivedAliases(2)
    first = Publish("a", b"", 0, properties={"topic_alias": 1, "content_type": "x"})
    second = Publish("", b"", 0, properties={"topic_alias": 1})
    third = Publish("b", b"", 0, properties={"content_type": "x"})
    for packet in (first, second, third):
        aliases.read(packet)
    assert [(packet.topic, packet.properties) for packet in (first, second, third)] == [
        ("a", {"content_type": "x"}),
        ("a", NO_PROPERTIES),
        ("b", {"content_type": "x"}),
    ]


def written(topic_alias: int = 0, omit_topic: bool = False) -> bytes:
    """A topic of five bytes, and the three of an alias."""
    return b"" if omit_topic and not topic_alias else b"alias topic"[0 if topic_alias else 6 : 5 if omit_topic else 11]


def test_the_first_topics_get_an_alias_and_keep_it() -> None:
    aliases = SentAliases(2)
    sent: list[tuple[int, bool]] = []

    def noted(topic_alias: int = 0, omit_topic: bool = False) -> bytes:
        sent.append((topic_alias, omit_topic))
        return b""

    for topic in "abcab":
        aliases.encode(topic, noted, 0)
    assert sent == [(1, False), (2, False), (0, False), (1, True), (2, True)]
    assert [aliases.topic(alias) for alias in (1, 2, 3)] == ["a", "b", ""]


def test_a_peer_that_allows_none_gets_none() -> None:
    assert SentAliases().encode("topic", written, 0) == b"topic"


def test_an_alias_is_set_with_the_topic_and_stands_for_it_from_then_on() -> None:
    aliases = SentAliases(1)
    assert [aliases.encode("topic", written, 0) for _ in range(3)] == [b"alias topic", b"alias", b"alias"]
    assert aliases.encode("other", written, 0) == b"topic"


def test_no_packet_is_too_large_because_of_an_alias() -> None:
    aliases = SentAliases(1)
    assert aliases.encode("topic", written, 10) == b"topic"
    assert not aliases.topic(1)
    assert aliases.encode("topic", written, 11) == b"alias topic"
    assert aliases.encode("topic", written, 4) == b"topic"  # too large anyhow
