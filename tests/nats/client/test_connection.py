"""One connection, byte by byte, without a server."""

from typing import Any

import pytest

from trunkline.nats.client.connection import MAX_PONGS, Connection, Phase
from trunkline.nats.errors import (
    AuthorizationFailed,
    BadCredentials,
    ConnectionLost,
    NatsError,
    PermissionDenied,
    ProtocolError,
    ServerError,
    StaleConnection,
)
from trunkline.nats.protocol.operations import Deliver

INFO = b'INFO {"version":"2.15.1","max_payload":100}\r\n'
GREETING = b'CONNECT {"name":"me"}\r\nPING\r\n'


class Story:
    """A connection, and what it tells."""

    def __init__(self, *, is_encrypted: bool = False) -> None:
        self.got: list[bytes] = []
        self.told: list[object] = []
        self.failure: NatsError | None = None
        self.connection = Connection(self, {b"1": self}, 0.0, is_encrypted=is_encrypted)

    def put(self, wire: Deliver) -> None:
        self.got.append(wire.payload)

    def greeting(self, server: Any) -> dict[str, object]:
        if self.failure is not None:
            raise self.failure
        return {"name": "me"}

    def informed(self, server: Any) -> None:
        self.told.append(server)

    def complained(self, error: ServerError) -> None:
        self.told.append(error)

    def open(self) -> Connection:
        self.connection.receive(INFO, 1.0)
        assert self.connection.take_output() == GREETING
        self.connection.receive(b"PONG\r\n", 1.0)
        self.told.clear()
        return self.connection


def test_a_greeting() -> None:
    story = Story()
    connection = story.connection
    assert (connection.phase, connection.is_settled, connection.take_output()) == (Phase.OPENED, False, b"")
    connection.receive(INFO, 1.0)
    assert (connection.phase, connection.is_settled, connection.max_payload) == (Phase.GREETED, False, 100)
    assert connection.waiting == len(GREETING)
    assert connection.take_output() == GREETING
    assert connection.waiting == 0
    connection.receive(b"PONG\r\n", 2.0)
    assert (connection.phase, connection.is_settled, connection.heard_at) == (Phase.OPEN, True, 2.0)
    assert connection.server["version"] == "2.15.1"
    assert connection.server.get("nonce") is None
    assert story.told == [{"version": "2.15.1", "max_payload": 100}]


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("more", [b"PONG\r\n", b"MSG a 1 1\r\nx\r\n", b"PO", b"PONG\r\nMSG a 1 1\r\nx\r\n"])
def test_what_comes_before_tls_is_not_believed(more: bytes, is_asked: bool) -> None:
    """Anybody on the way may have said it."""
    story = Story(is_encrypted=not is_asked)
    info = b'INFO {"tls_required":true}\r\n' if is_asked else INFO
    story.connection.receive(info + more, 1.0)
    assert str(story.connection.error) == "more than INFO came before TLS"
    assert (story.got, story.connection.take_output()) == ([], b"")
    story = Story(is_encrypted=not is_asked)
    story.connection.receive(info, 1.0)
    assert story.connection.begins_tls()
    assert story.connection.phase is Phase.GREETED


def test_a_server_that_reads_no_answers() -> None:
    connection = Story().open()
    connection.receive(b"PING\r\n" * MAX_PONGS, 2.0)
    assert connection.phase is Phase.OPEN
    connection.take_output()
    connection.receive(b"PING\r\n" * (MAX_PONGS + 1), 2.0)
    assert isinstance(connection.error, StaleConnection)


def test_a_nonce_that_is_no_text() -> None:
    story = Story()

    def greet(_: Any) -> dict[str, object]:
        "\ud800".encode()
        return {}

    story.greeting = greet  # type: ignore[method-assign]
    story.connection.receive(INFO, 1.0)
    assert isinstance(story.connection.error, ProtocolError)


@pytest.mark.parametrize("size", [b"0", b"true", b"-1", b'"x"', b"null", b"1.5"])
def test_a_size_that_is_none_is_that_of_servers_by_default(size: bytes) -> None:
    connection = Story().connection
    connection.receive(b'INFO {"max_payload":%s}\r\n' % size, 1.0)
    assert connection.max_payload == 1 << 20


def test_what_the_client_has_not_ends_it() -> None:
    story = Story()
    story.failure = BadCredentials("no seed")
    story.connection.receive(INFO, 1.0)
    assert (story.connection.phase, story.connection.error) == (Phase.OVER, story.failure)
    assert story.connection.take_output() == b""


def test_messages_go_to_their_subscriptions() -> None:
    story = Story()
    story.open().receive(b"MSG a 1 1\r\nx\r\nMSG a 2 1\r\ny\r\nPING\r\nMSG a 1 1\r\nz\r\n", 3.0)
    assert story.got == [b"x", b"z"]
    assert story.connection.take_output() == b"PONG\r\n"


def test_pongs_answer_in_order() -> None:
    story = Story()
    connection, answered = story.open(), list[int]()
    connection.ping(lambda: answered.append(1))
    connection.ping()
    connection.ping(lambda: answered.append(3))
    assert connection.take_output() == b"PING\r\n" * 3
    connection.receive(b"PONG\r\n", 2.0)
    assert answered == [1]
    connection.receive(b"PONG\r\nPONG\r\n", 2.0)
    assert answered == [1, 3]
    connection.receive(b"PONG\r\n", 2.0)
    assert isinstance(connection.error, ProtocolError)


def test_a_server_that_says_nothing() -> None:
    connection = Story().open()
    connection.watch(2)
    connection.watch(2)
    assert connection.take_output() == b"PING\r\n" * 2
    connection.receive(b"PONG\r\n", 2.0)
    connection.watch(2)
    connection.watch(2)
    assert connection.phase is Phase.OPEN
    connection.watch(2)
    assert isinstance(connection.error, StaleConnection)
    assert str(connection.error) == "the server has left 2 PINGs unanswered"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('Permissions Violation for Publish to "a"', PermissionDenied),
        ('Permissions Violation for Subscription to "a"', PermissionDenied),
        ("Invalid Subject", ServerError),
        ("Invalid Publish Subject", ServerError),
    ],
)
def test_errors_behind_which_it_goes_on(text: str, kind: type[ServerError]) -> None:
    story = Story()
    connection = story.open()
    connection.receive(b"-ERR '%s'\r\n" % text.encode(), 2.0)
    assert connection.phase is Phase.OPEN
    (error,) = story.told
    assert (type(error), str(error)) == (kind, text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Authorization Violation", AuthorizationFailed),
        ("Authentication Timeout", AuthorizationFailed),
        ("User Authentication Expired", AuthorizationFailed),
        ("Account Authentication Expired", AuthorizationFailed),
        ("Stale Connection", StaleConnection),
        ("Maximum Payload Violation", ServerError),
        ("Unknown Protocol Operation", ServerError),
        ("whatever else", ServerError),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_errors_that_end_it(text: str, kind: type[NatsError], is_open: bool) -> None:
    story = Story()
    connection = story.open() if is_open else story.connection
    connection.receive(b"-ERR '%s'\r\nMSG a 1 1\r\nx\r\n" % text.encode(), 2.0)
    assert (connection.phase, type(connection.error)) == (Phase.OVER, kind)
    assert text in str(connection.error)
    connection.receive(b"PING\r\n", 2.0)
    assert connection.take_output() == b""


def test_nonsense_ends_it() -> None:
    connection = Story().open()
    connection.receive(b"HTTP/1.1 400\r\n", 2.0)
    assert isinstance(connection.error, ProtocolError)


def test_the_first_reason_counts() -> None:
    connection = Story().open()
    connection.receive(b"", 2.0)
    assert isinstance(connection.error, ConnectionLost)
    connection.lost(StaleConnection("later"))
    assert str(connection.error) == "the server has closed the connection"
    connection = Story().open()
    connection.lost(None)
    connection.lost(StaleConnection("later"))
    assert (connection.phase, connection.error) == (Phase.OVER, None)


def test_news_of_the_server() -> None:
    story = Story()
    connection = story.open()
    connection.receive(b'INFO {"ldm":true,"max_payload":7}\r\n', 2.0)
    assert (connection.phase, connection.max_payload) == (Phase.OPEN, 7)
    assert story.told == [{"ldm": True, "max_payload": 7}]
    assert connection.take_output() == b""
