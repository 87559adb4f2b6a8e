"""Errors say what was lost or refused, and why."""

from trunkline.client.errors import (
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    PublishesRefused,
    SubscribeRefused,
)


def test_a_refusal_has_code_words_and_the_servers_text() -> None:
    error = ConnectRefused(0x86, {"reason_string": "expired"})
    assert str(error) == "the server refused the connection: bad user name or password (0x86), expired"
    assert error.reason == 0x86


def test_a_server_that_disconnects_is_one_way_to_be_disconnected() -> None:
    error = DisconnectedByServer(0x8E)
    assert isinstance(error, Disconnected)
    assert str(error) == "the server ended the connection: session taken over (0x8E)"


def test_refused_filters_are_named() -> None:
    error = SubscribeRefused({"a/#": 1, "b": 0x87, "c": 0x8F})
    assert str(error) == (
        "the server refused the subscription to b: not authorized (0x87); c: topic filter invalid (0x8F)"
    )
    error = SubscribeRefused({"$stream/b/#": 0x8F}, {"reason_string": "there is no stream 'b'"})
    assert str(error).endswith(" to $stream/b/#: topic filter invalid (0x8F), there is no stream 'b'")


def test_refused_messages_of_a_burst_are_counted() -> None:
    assert str(PublishesRefused([(b"x", 0x97), (b"y", 0x80)], "a")) == (
        "the server refused 2 of the messages to a, the first: quota exceeded (0x97)"
    )
