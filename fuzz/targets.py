"""What is fuzzed. A target takes any bytes, and fails with an exception; what it promises is in its docstring."""

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import trio

from tests.broker.net.below import Below
from tests.client.hostile import check, rig_of
from tests.mqtt.exchange import all_same, is_first, same, unfolded
from trunkline.broker.nats.carrying import WITH_HEADERS, form_of, forms_of, properties_of
from trunkline.broker.nats.mapping import filter_of, read_subject, subject_of, topic_of
from trunkline.broker.net.proxy_header import HeaderError, read_header
from trunkline.broker.net.websocket import WebSocketLayer
from trunkline.config.errors import ConfigError, Problem
from trunkline.config.layer_settings import WebSocketSettings
from trunkline.config.reader import load
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import validate_filter
from trunkline.mqtt.versions import Version
from trunkline.nats.client.connection import Connection, Phase
from trunkline.nats.client.message import Message as NatsMessage
from trunkline.nats.client.services.request import service_error_of
from trunkline.nats.errors import BadHeaders, BadSubject, NotJetStream, ServerError
from trunkline.nats.jetstream import statuses
from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.fields import BadReply, from_json, to_json
from trunkline.nats.jetstream.flows import answer_of, asked_by
from trunkline.nats.jetstream.replies import ApiError, ConsumerInfo, PublishAck, StreamInfo, parse
from trunkline.nats.jetstream.statuses import meaning_of, number_in, status_of
from trunkline.nats.protocol.acknowledging import origin_of
from trunkline.nats.protocol.decoder import from_client, from_server
from trunkline.nats.protocol.operations import Deliver, Publish, Subscribe

#: Where files of the targets are written: in memory if the system has a folder there.
_MEMORY: Final = Path("/dev/shm")
#: A request that opens a WebSocket.
UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def decoder(data: bytes) -> None:
    """Bytes yield packets, or an error that can be answered; split anywhere, they yield the same; packets that come
    together are the same as packets one by one; and a packet that is encoded again is decoded as the same.

    The first byte chooses version, side and limits, the second how the rest is split.
    """
    if len(data) < 3:
        return
    options, split, stream = data[0], data[1], data[2:]
    version = [*Version, None][options & 3]
    settings: dict[str, Any] = {
        "server": version is None or not options & 4,
        "version": version,
        "max_packet_size": 100 if options & 8 else 1_000_000,
        "strict_utf8": not options & 16,
        "max_filters": 3 if options & 32 else 0,
    }
    whole = Decoder(**settings)
    packets: list[Any] = [*whole.feed(stream)]
    error = whole.error
    assert error is None or (error.reason >= 0x80 and str(error))
    assert whole.buffered <= len(stream)

    split_decoder = Decoder(**settings)
    pieces: list[Any] = [packet for piece in _split(stream, split) for packet in split_decoder.feed(piece)]
    assert all_same(packets, pieces)
    assert (split_decoder.error and split_decoder.error.reason) == (error and error.reason)
    assert split_decoder.buffered == whole.buffered
    assert split_decoder.version == whole.version

    gathering = Decoder(**settings, gathers=True)
    assert all_same(packets, unfolded(gathering.feed(stream)))
    assert (gathering.error and gathering.error.reason) == (error and error.reason)

    for packet in packets:
        assert whole.version is not None
        settings["version"] = None if is_first(packet) else whole.version
        again = Decoder(**settings | {"max_packet_size": 2_000_000, "max_filters": 0})
        assert same(again.feed(encode(packet, whole.version))[0], packet)


def _split(stream: bytes, seed: int) -> list[bytes]:
    """Each byte on its own for 0, else pieces of different sizes."""
    if not seed:
        return [bytes((byte,)) for byte in stream]
    sizes = [seed & 15 or 16, seed >> 4 or 16]
    pieces = list[bytes]()
    while stream:
        size = sizes[len(pieces) % 2]
        pieces.append(stream[:size])
        stream = stream[size:]
    return pieces


def configuration(data: bytes) -> None:
    """A file yields settings, or errors that name their source and fit a terminal's screen.

    Lines up to an empty one are variables of the environment, NAME=VALUE; the rest is the file.
    """
    head, _, file = data.rpartition(b"\n\n")
    environ = dict[str, str]()
    for line in head.decode(errors="surrogateescape").splitlines():
        name, mark, value = line.partition("=")
        if mark and name and "\0" not in line:
            environ[f"TRUNKLINE_{name}"] = value
    with tempfile.NamedTemporaryFile(dir=_MEMORY if _MEMORY.is_dir() else None, suffix=".toml") as written:
        written.write(file)
        written.flush()
        problems: Sequence[Problem] = ()
        try:
            load(written.name, environ)
        except ConfigError as error:
            problems = error.problems
            assert problems, "an error without a problem"
        for problem in problems:
            assert problem.source
            assert len(str(problem)) < 10_000, f"{len(str(problem))} characters"


def proxy(data: bytes) -> None:
    """A PROXY header is read, refused or not complete; and what was said of a beginning stays true of the whole."""
    said: object = None
    for end in range(len(data) + 1):
        try:
            found: object = read_header(data[:end])
        except HeaderError:
            found = "refused"
        assert said is None or found == said, f"{said} at {end - 1} bytes, {found} at {end}"
        said = found


def websocket(data: bytes) -> None:
    """Bytes become payload, and an end of the connection where they break the protocol; split anywhere, the same. Of a
    frame that is not valid, no more than its beginning is passed on.

    The first byte chooses compression and whether a request that is accepted comes before, the second how the rest is
    split.
    """
    if len(data) < 3:
        return
    stream = (UPGRADE if data[0] & 2 else b"") + data[2:]
    whole = trio.run(_through_websocket, [stream], bool(data[0] & 1))
    pieces = trio.run(_through_websocket, _split(stream, data[1]), bool(data[0] & 1))
    assert whole[1] == pieces[1], f"{whole} as a whole, {pieces} in pieces"
    shorter, longer = sorted((whole[0], pieces[0]), key=len)
    assert longer.startswith(shorter) if whole[1] else longer == shorter, f"{whole} as a whole, {pieces} in pieces"


async def _through_websocket(pieces: list[bytes], compressed: bool) -> tuple[bytes, str | None]:
    below = Below()
    below.put(WebSocketLayer(below, "/mqtt", WebSocketSettings(compression=compressed)))
    for piece in pieces:
        below.receive(piece)
    for _ in range(100):
        below.turn()
    assert len(below.sent) <= 1000 + sum(map(len, pieces))
    return below.data, below.failed and below.failed.problem


def client(data: bytes) -> None:
    """Bytes of a server end in an error of the client, or in nothing; what the client sends is MQTT, nothing follows
    its DISCONNECT, and no more messages wait for an acknowledgement than the receive maximum.

    The first byte chooses version, authentication and whether the connection is open, the second how the rest is split.
    """
    if len(data) < 3:
        return
    version = ("5.0", "3.1.1", "3.1", "5.0")[data[0] & 3]
    check(rig_of(version, is_open=not data[0] & 4, authenticates=bool(data[0] & 8)), _split(data[2:], data[1]))


def nats(data: bytes) -> None:
    """Bytes of a client of NATS yield operations, or an error that can be answered; split anywhere, the same. A subject
    that has a topic is the subject of that topic, and what is delivered is read by a client as it was published.

    The first byte chooses the limits, the second how the rest is split.
    """
    if len(data) < 3:
        return
    limits: dict[str, int] = {"max_line": 64 if data[0] & 1 else 4096, "max_payload": 50 if data[0] & 2 else 1 << 20}
    whole, pieces = from_client(**limits), from_client(**limits)
    operations = whole.feed(data[2:])
    split = [each for piece in _split(data[2:], data[1]) for each in pieces.feed(piece)]
    assert list(map(repr, operations)) == list(map(repr, split))
    assert (whole.error and whole.error.answer) == (pieces.error and pieces.error.answer)
    for operation in operations:
        if isinstance(operation, Publish):
            _delivered(operation)
        elif isinstance(operation, Subscribe):
            with suppress(BadSubject):
                validate_filter(filter_of(read_subject(operation.subject), 128), 128)


def _delivered(asked: Publish) -> None:
    try:
        topic, properties = topic_of(asked.subject, 128), properties_of(asked)
    except BadSubject:
        return
    assert subject_of(topic).encode() == asked.subject
    message = Message(topic, asked.payload, properties=properties)
    encode_publish(message, Version.V5, qos=0, retain=False)
    for forms in (
        forms_of(asked.subject, asked.reply, asked.block, asked.payload),
        {WITH_HEADERS: form_of(message, WITH_HEADERS)},
    ):
        head, tail = forms[WITH_HEADERS]
        (got,) = from_server().feed(head + b"7" + tail)
        assert isinstance(got, Deliver)
        assert (got.subject, got.sid, got.reply, got.payload) == (asked.subject, b"7", asked.reply, asked.payload)


class _Told:
    """What a client of NATS passes on: to its subscriptions, and of its connection."""

    def __init__(self, *, is_encrypted: bool) -> None:
        self.got: list[object] = []
        self.connection = Connection(self, {b"1": self, b"2": self}, 0.0, is_encrypted=is_encrypted)

    def put(self, wire: Deliver) -> None:
        headers: object = None
        with suppress(BadHeaders):  # whoever asks for them is told
            headers = wire.headers
        self.got.append((wire.subject, wire.sid, wire.reply, headers, wire.payload))

    def greeting(self, server: Any) -> dict[str, object]:
        return {"name": "me", "nonce": str(server.get("nonce"))}

    def informed(self, server: Any) -> None:
        self.got.append(server)

    def complained(self, error: ServerError) -> None:
        self.got.append(str(error))


def nats_client(data: bytes) -> None:
    """Bytes of a NATS server end in an error of the client, or in nothing; split anywhere, the same, but that nothing
    may come with an INFO that begins TLS. What the client writes is NATS, and it keeps no more than has come.

    The first byte chooses whether TLS begins behind INFO, and whether the client is let in; the second how the rest is
    split.
    """
    if len(data) < 3:
        return
    options, stream = data[0], (b"" if data[0] & 2 else b"INFO {}\r\nPONG\r\n") + data[2:]
    whole, pieces = _Told(is_encrypted=bool(options & 1)), _Told(is_encrypted=bool(options & 1))
    whole.connection.receive(stream, 1.0)
    for piece in _split(stream, data[1]):
        pieces.connection.receive(piece, 1.0)
    for told in (whole, pieces):
        connection = told.connection
        assert connection.waiting <= 1000 + len(stream)
        assert (connection.phase is Phase.OVER) is (connection.error is not None)
        written = from_client(max_line=1 << 20)
        written.feed(connection.take_output())
        assert written.error is None
    if pieces.connection.server.get("tls_required") or options & 1:
        return
    assert repr(whole.connection.error) == repr(pieces.connection.error)
    assert repr(whole.got).startswith(repr(pieces.got)[:-1]), f"{whole.got} as a whole, {pieces.got} in pieces"


#: What answers are read as.
_KINDS: Final[tuple[type[Any], ...]] = (StreamInfo, ConsumerInfo, PublishAck, StreamConfig, ConsumerConfig)


def jetstream(data: bytes) -> None:
    """What JetStream, or anybody in its place, says has a value or is an error of the client; and what was written
    stays the same, however often it is read and written.

    The first byte chooses what an answer is read as.
    """
    if not data:
        return
    kind, said = _KINDS[data[0] % len(_KINDS)], data[1:]
    text = said.decode(errors="replace")
    with suppress(NotJetStream):
        assert min(origin_of(f"$JS.ACK.{text}")[2:7]) >= 0
    assert min(asked_by(said)) >= 0
    with suppress(BadHeaders):
        wire = Deliver(b"a", b"1", b"", said, b"")
        status = status_of(wire)
        if status is not None:
            meaning_of(status)
            statuses.error_of(status)
        number_in(wire, statuses.LAST_CONSUMER)
        service_error_of(NatsMessage(wire, cast("Any", None)))
    with suppress(ApiError, BadReply):
        answer_of(said)
    with suppress(ApiError, BadReply):
        value = from_json(kind, parse(said))
        again = from_json(kind, json.loads(json.dumps(to_json(value))))
        assert from_json(kind, to_json(again)) == again


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "decoder": decoder,
    "configuration": configuration,
    "proxy": proxy,
    "websocket": websocket,
    "client": client,
    "nats": nats,
    "nats_client": nats_client,
    "jetstream": jetstream,
}
