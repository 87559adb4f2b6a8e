"""One connection without I/O: CONNECT to its end."""

from typing import Any

import pytest

from tests.client.rig import PIECES, Rig, payloads, publish, shown
from trunkline.client.connection import Phase
from trunkline.client.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    ReauthenticationFailed,
    SessionLost,
)
from trunkline.client.settings import WillMessage
from trunkline.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Will,
)
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

VERSIONS = ("5.0", "3.1.1", "3.1")


def test_connect_of_5() -> None:
    rig = Rig(
        username="u",
        password=b"p",
        keep_alive=30,
        clean_start=False,
        session_expiry=60,
        receive_maximum=10,
        max_packet_size=1000,
        topic_aliases_in=5,
        request_response_information=True,
        request_problem_information=False,
        user_properties=(("a", "b"), ("a", "c")),
        will=WillMessage(topic="w", payload="gone", qos=1, retain=True, delay=3),
    )
    (connect,) = rig.sent()
    assert connect == Connect(
        "c",
        Version.V5,
        False,
        30,
        Will("w", b"gone", 1, True, {"will_delay_interval": 3}),
        "u",
        b"p",
        properties={
            "session_expiry_interval": 60,
            "receive_maximum": 10,
            "maximum_packet_size": 1000,
            "topic_alias_maximum": 5,
            "request_response_information": 1,
            "request_problem_information": 0,
            "user_property": [("a", "b"), ("a", "c")],
        },
    )


@pytest.mark.parametrize("version", ["3.1.1", "3.1"])
def test_connect_of_3(version: str) -> None:
    rig = Rig(version=version, session_expiry=60, topic_aliases_in=5)
    assert rig.sent() == [Connect("c", rig.settings.version, True, 60)]


def test_only_the_first_connection_starts_clean() -> None:
    rig = Rig(clean_start=True)
    rig.open()
    (connect,) = rig.again().sent()
    assert isinstance(connect, Connect)
    assert not connect.clean_start


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("version", VERSIONS)
def test_connack_opens(version: str, pieces: int) -> None:
    rig = Rig(version=version, pieces=pieces)
    rig.open()
    assert rig.connection.phase is Phase.OPEN
    assert payloads(rig.give(publish(payload=b"x"))) == [b"x"]


def test_what_the_server_decides() -> None:
    rig = Rig(client_id="")
    rig.open(properties={"assigned_client_identifier": "assigned", "server_keep_alive": 7})
    assert (rig.connection.client_id, rig.connection.keep_alive) == ("assigned", 7)


@pytest.mark.parametrize(
    ("version", "reason"), [("5.0", 0x86), ("3.1.1", 0x87), ("3.1", 0x88)], ids=["5.0", "3.1.1", "3.1"]
)
def test_a_refusal(version: str, reason: int) -> None:
    rig = Rig(version=version)
    rig.sent()
    rig.give(Connack(False, reason))
    assert isinstance(rig.connection.error, ConnectRefused)
    assert rig.connection.error.reason == reason
    assert rig.sent() == []


def test_a_lost_session_is_the_end() -> None:
    """Nothing is subscribed again, and the session that the server has just made is ended."""
    rig = Rig(session_expiry=60)
    rig.open()
    rig = rig.again(session_expiry=60)
    rig.sent()
    rig.give(Connack(False))
    assert isinstance(rig.connection.error, SessionLost)
    assert rig.sent() == [Disconnect(0, {"session_expiry_interval": 0})]


def test_a_session_that_others_left_is_taken_up() -> None:
    rig = Rig(clean_start=False)
    rig.open(session_present=True)
    assert rig.connection.connack.session_present


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([publish()], Reason.PROTOCOL_ERROR),
        ([Connack(True)], Reason.PROTOCOL_ERROR),
        ([Connack(), Connack()], Reason.PROTOCOL_ERROR),
        ([Auth(0x18, {"authentication_method": "x"})], Reason.PROTOCOL_ERROR),
        ([Connack(), Auth(0, {"authentication_method": "x"})], Reason.PROTOCOL_ERROR),
        ([Connack(), Suback(1, [0])], Reason.PROTOCOL_ERROR),
        ([Connack(), publish("a/#")], Reason.MALFORMED_PACKET),
        ([Connack(), publish(properties={"topic_alias": 1})], Reason.TOPIC_ALIAS_INVALID),
    ],
    ids=["before CONNACK", "session", "twice", "AUTH", "late AUTH", "SUBACK", "wildcard", "alias"],
)
def test_a_server_that_breaks_the_protocol(packets: list[Packet], reason: int, pieces: int) -> None:
    rig = Rig(pieces=pieces)
    rig.sent()
    rig.give(*packets)
    assert isinstance(rig.connection.error, Disconnected | ConnectFailed)
    assert "the server broke the protocol" in str(rig.connection.error)
    assert rig.sent() == [Disconnect(reason)]
    assert rig.give(publish()) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "the server speaks HTTP, not MQTT"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "the server speaks TLS, not MQTT"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the server speaks SSH, not MQTT"),
        (b'INFO {"server_id":"N"}\r\n', "the server speaks the protocol of NATS, not MQTT"),
        (b"", "the server closed the connection"),
    ],
)
def test_a_server_that_does_not_answer_in_mqtt(data: bytes, words: str) -> None:
    rig = Rig()
    rig.sent()
    rig.feed(data) if data else rig.connection.receive(b"", rig.now)
    assert isinstance(rig.connection.error, ConnectFailed)
    assert str(rig.connection.error) == f"cannot connect to mqtt://localhost: {words}"


def test_what_came_before_an_error_is_handed_over() -> None:
    rig = Rig()
    rig.open()
    assert payloads(rig.feed(b"\x30\x04\0\1t\0" + b"\x00\x00")) == [b""]
    assert isinstance(rig.connection.error, Disconnected)


def test_a_broken_3_server_gets_no_disconnect() -> None:
    """There it would mean that all is well, and would drop the will."""
    rig = Rig(version="3.1.1")
    rig.open()
    rig.feed(b"\x00\x00")
    assert rig.sent() == []


def test_a_packet_that_is_too_large() -> None:
    rig = Rig(max_packet_size=50)
    rig.open()
    rig.give(publish(payload=bytes(60)))
    assert rig.sent() == [Disconnect(Reason.PACKET_TOO_LARGE)]


def test_the_server_disconnects() -> None:
    rig = Rig()
    rig.open()
    rig.give(Disconnect(Reason.SESSION_TAKEN_OVER, {"reason_string": "elsewhere"}))
    error = rig.connection.error
    assert isinstance(error, DisconnectedByServer)
    assert (error.reason, error.properties) == (0x8E, {"reason_string": "elsewhere"})
    assert rig.sent() == []


def test_the_server_closes() -> None:
    rig = Rig()
    rig.open()
    rig.connection.receive(b"", 0.0)
    rig.connection.lost(Disconnected("later"))
    assert str(rig.connection.error) == "the server closed the connection"


@pytest.mark.parametrize("version", VERSIONS)
def test_this_side_disconnects(version: str) -> None:
    rig = Rig(version=version)
    rig.open()
    rig.connection.disconnect(0x04, {"session_expiry_interval": 5})
    rig.connection.disconnect()
    expected = Disconnect(0x04, {"session_expiry_interval": 5}) if version == "5.0" else Disconnect()
    assert rig.sent() == [expected]
    assert rig.connection.error is None


# Keep-alive


def test_a_silent_server_is_asked_and_given_up() -> None:
    rig = Rig(keep_alive=30, ping_timeout=5)
    rig.open()
    connection = rig.connection
    rig.now = 29.0
    connection.on_time(rig.now)
    assert rig.sent() == []
    rig.now = connection.deadline
    assert rig.now == 30
    connection.on_time(rig.now)
    assert rig.sent() == [Pingreq()]
    rig.give(Pingresp())
    assert connection.deadline == 60
    rig.now = 60.0
    connection.on_time(rig.now)
    assert rig.sent() == [Pingreq()]
    rig.now = connection.deadline
    assert rig.now == 65
    connection.on_time(rig.now)
    assert str(connection.error) == "the server did not answer within 5 s"


def test_who_only_sends_asks_whether_the_server_hears() -> None:
    rig = Rig(keep_alive=30)
    rig.open()
    for second in range(0, 30, 10):
        rig.now = float(second)
        rig.publish()
        assert shown(rig.sent()) == ["PUBLISH"]
    assert rig.connection.deadline == 30


def test_who_only_receives_is_heard_from() -> None:
    rig = Rig(keep_alive=30)
    rig.open()
    rig.now = 20.0
    rig.give(publish())
    assert rig.connection.deadline == 30


def test_while_nothing_is_read_no_answer_is_expected() -> None:
    rig = Rig(keep_alive=30, ping_timeout=5)
    rig.open()
    connection = rig.connection
    connection.set_reading(False, 0.0)
    for now in (30.0, 60.0, 90.0):
        assert connection.deadline == now
        rig.now = now
        connection.on_time(now)
        assert rig.sent() == [Pingreq()]
    connection.set_reading(True, 100.0)
    assert connection.deadline == 120


def test_no_keep_alive() -> None:
    rig = Rig(keep_alive=0)
    rig.open()
    assert rig.connection.deadline == float("inf")


# Enhanced authentication


class Handshake:
    """Counts: each answer has one more than the challenge."""

    method = "count"

    def __init__(self) -> None:
        self.finished: list[bytes] = []

    def begin(self) -> bytes | None:
        return b"0"

    def answer(self, challenge: bytes) -> bytes | None:
        return b"%d" % (int(challenge) + 1)

    def finish(self, data: bytes) -> None:
        if data == b"wrong":
            raise ValueError("not the server")
        self.finished.append(data)


def auth(reason: int, data: bytes) -> Auth:
    return Auth(reason, {"authentication_method": "count", "authentication_data": data})


@pytest.mark.parametrize("pieces", PIECES)
def test_enhanced_authentication(pieces: int) -> None:
    handshake = Handshake()
    rig = Rig(authenticator=handshake, pieces=pieces)
    (connect,) = rig.sent()
    assert isinstance(connect, Connect)
    assert connect.properties.get("authentication_method") == "count"
    assert connect.properties.get("authentication_data") == b"0"
    rig.give(auth(0x18, b"1"), auth(0x18, b"3"))
    assert rig.sent() == [auth(0x18, b"2"), auth(0x18, b"4")]
    rig.give(Connack(False, 0, {"authentication_method": "count", "authentication_data": b"end"}))
    assert rig.connection.phase is Phase.OPEN
    assert handshake.finished == [b"end"]


def test_re_authentication() -> None:
    handshake = Handshake()
    rig = Rig(authenticator=handshake)
    rig.open()
    request = rig.connection.reauthenticate()
    assert rig.connection.reauthenticate() is request
    assert rig.sent() == [auth(0x19, b"0")]
    rig.give(auth(0x18, b"1"), auth(0, b"end"))
    assert rig.sent() == [auth(0x18, b"2")]
    assert request.is_done
    assert request.error is None
    assert handshake.finished == [b"", b"end"]
    again = rig.connection.reauthenticate()
    assert again is not request
    assert rig.sent() == [auth(0x19, b"0")]
    rig.give(auth(0, b"end"))
    assert again.is_done
    assert handshake.finished == [b"", b"end", b"end"]


def test_a_connection_that_ends_ends_its_re_authentication() -> None:
    rig = Rig(authenticator=Handshake())
    rig.open()
    request = rig.connection.reauthenticate()
    rig.give(Disconnect(Reason.SERVER_SHUTTING_DOWN))
    assert isinstance(request.error, DisconnectedByServer)
    with pytest.raises(AuthenticationFailed):
        rig.connection.reauthenticate()


def test_a_server_that_refuses_a_re_authentication() -> None:
    """Another connection may be accepted."""
    rig = Rig(authenticator=Handshake())
    rig.open()
    request = rig.connection.reauthenticate()
    rig.give(Disconnect(Reason.NOT_AUTHORIZED))
    error = rig.connection.error
    assert isinstance(error, ReauthenticationFailed)
    assert isinstance(error.__cause__, DisconnectedByServer)
    assert error.transient
    assert request.error is error


def test_a_server_that_cannot_prove_itself_again() -> None:
    rig = Rig(authenticator=Handshake())
    rig.open()
    request = rig.connection.reauthenticate()
    rig.sent()
    rig.give(auth(0, b"wrong"))
    assert isinstance(request.error, ReauthenticationFailed)
    assert isinstance(request.error.__cause__, AuthenticationFailed)
    assert rig.connection.error is request.error
    assert rig.sent() == [Disconnect(Reason.UNSPECIFIED_ERROR)]


@pytest.mark.parametrize(
    "packets",
    [
        [Auth(0x18, {"authentication_method": "other"})],
        [Auth(0, {"authentication_method": "count"})],
        [Connack()],
        [Connack(False, 0, {"authentication_method": "other"})],
        [Connack(False, 0, {"authentication_method": "count"}), Auth(0x18, {"authentication_method": "count"})],
        [Connack(False, 0, {"authentication_method": "count"}), Auth(0, {"authentication_method": "count"})],
    ],
    ids=["AUTH of another", "early end", "CONNACK of none", "CONNACK of another", "AUTH unasked", "end unasked"],
)
def test_authentication_that_nobody_asked_for(packets: list[Packet]) -> None:
    rig = Rig(authenticator=Handshake())
    rig.sent()
    rig.give(*packets)
    assert "the server broke the protocol" in str(rig.connection.error)
    assert rig.sent() == [Disconnect(Reason.PROTOCOL_ERROR)]


def test_a_method_in_connack_that_nobody_asked_for() -> None:
    rig = Rig()
    rig.sent()
    rig.give(Connack(False, 0, {"authentication_method": "count"}))
    assert "the server broke the protocol" in str(rig.connection.error)


def test_a_server_that_cannot_prove_itself() -> None:
    rig = Rig(authenticator=Handshake())
    rig.sent()
    rig.give(Connack(False, 0, {"authentication_method": "count", "authentication_data": b"wrong"}))
    assert isinstance(rig.connection.error, AuthenticationFailed)
    assert rig.sent() == [Disconnect(Reason.UNSPECIFIED_ERROR)]


def test_an_authenticator_that_gives_up_at_once() -> None:
    class Hopeless(Handshake):
        def begin(self) -> bytes | None:
            raise OSError("no ticket")

    with pytest.raises(AuthenticationFailed, match="no ticket"):
        Rig(authenticator=Hopeless())


def test_aliases_of_the_server() -> None:
    rig = Rig(topic_aliases_in=1)
    rig.open()
    handovers = rig.give(
        publish("a", properties={"topic_alias": 1, "content_type": "x"}), publish("", properties={"topic_alias": 1})
    )
    messages: list[Any] = [message for each in handovers for message in each.publication.messages]
    assert [(message.topic, message.properties) for message in messages] == [("a", {"content_type": "x"}), ("a", {})]


def test_aliases_of_the_client() -> None:
    rig = Rig(topic_aliases_out=10)
    rig.open(properties={"topic_alias_maximum": 1})
    for topic in ("a", "a", "b"):
        rig.publish(topic, b"x", 1)
    sent = [packet for packet in rig.sent() if isinstance(packet, Publish)]
    assert [(packet.topic, packet.properties.get("topic_alias")) for packet in sent] == [("a", 1), ("", 1), ("b", None)]
    again = rig.again()
    sent = [packet for packet in again.open(session_present=True) if isinstance(packet, Publish)]
    assert [(packet.topic, packet.properties.get("topic_alias")) for packet in sent] == [("a", None)] * 2 + [
        ("b", None)
    ]
