"""The packets of a connection are decoded from outside."""

from tests.conformance import raw
from trunkline.mqtt.conversation import Conversation
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.versions import Version


def test_the_version_and_the_client_id_are_learned() -> None:
    conversation = Conversation()
    assert conversation.read(raw.PINGREQ, from_client=True) is None, "no CONNECT came before"
    assert conversation.read(raw.connect("a", version=4), from_client=True) is not None
    assert (conversation.client_id, conversation.version) == ("a", Version.V311)
    assert isinstance(conversation.read(raw.publish("t", b"x", version=4), from_client=False), Publish)


def test_a_client_id_that_the_broker_assigns_is_learned() -> None:
    conversation = Conversation(version=Version.V5)
    assigned = b"\x12\0\x05given"
    conversation.read(raw.packet(raw.CONNACK, b"\0\0" + bytes((len(assigned),)) + assigned), from_client=False)
    assert conversation.client_id == "given"


def test_what_breaks_the_rules_is_nothing() -> None:
    conversation = Conversation("a", Version.V5)
    assert conversation.read(raw.packet(raw.PUBACK, b"\0"), from_client=True) is None
    assert conversation.read(raw.PINGREQ, from_client=False) is None, "a broker sends no PINGREQ"


def test_an_alias_stands_for_the_topic_that_its_side_set() -> None:
    conversation = Conversation("a", Version.V5)

    def topic(name: str, alias: int, from_client: bool) -> str:
        packet = conversation.read(raw.publish(name, b"1", properties=raw.topic_alias(alias)), from_client)
        assert isinstance(packet, Publish)
        return packet.topic

    assert topic("long/name", 3, from_client=True) == "long/name"
    assert topic("", 3, from_client=True) == "long/name"
    assert topic("", 4, from_client=True) == ""
    assert topic("", 3, from_client=False) == ""
