"""Publishing by a plain socket, and knowing that all has arrived.

One thread, no loop: a task of Spark does nothing else. Messages of QoS 1 are sent ahead of their acknowledgements, as
many as the broker allows. What was not acknowledged when a connection is lost is sent again on the next one, in the
same order and with the same numbers.

Sending blocks, reading does not unless there is nothing to send: the broker's answers are read after every chunk, so
the two sides cannot wait for each other.
"""

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from socket import IPPROTO_TCP, SHUT_WR, TCP_NODELAY, create_connection, socket
from typing import Final

from trunkline.analytics.sinks.deduplicator import BATCH, ROW
from trunkline.analytics.sinks.messages import Outgoing
from trunkline.analytics.sinks.settings import SinkError, SinkSettings
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason, in_words
from trunkline.mqtt.versions import Version

#: Bytes that are sent before answers are looked at; messages that are collected before any is sent.
_CHUNK: Final = 65_536
_COLLECTED: Final = 64
MAX_PACKET_ID: Final = 65_535
#: Nothing is subscribed to, so the broker has little to say.
_MAX_ANSWER: Final = 65_536

#: Reasons that may pass in a moment. After any other refusal another attempt is useless.
_PASSING: Final = frozenset(
    (
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.SERVER_SHUTTING_DOWN,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.MESSAGE_RATE_TOO_HIGH,
        Reason.QUOTA_EXCEEDED,
        Reason.CONNECTION_RATE_EXCEEDED,
        Reason.MAXIMUM_CONNECT_TIME,
    )
)


class PublishError(RuntimeError):
    """Messages could not be brought to the broker; the text says why, and of a single message which."""


class ConnectionLost(Exception):
    """This connection is of no use any more. The next one may be."""


def client_id(prefix: str, query: str, partition: int) -> str:
    """The same for each attempt at a partition, so that the broker closes the connection of an attempt that hangs."""
    return f"{prefix}-{blake2b(query.encode(), digest_size=6).hexdigest()}-{partition}"


class Publisher:
    """Messages of a task, by one connection, made anew as often as it takes."""

    def __init__(
        self, settings: SinkSettings, client_id: str, batch: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`batch` names the query and the batch in each message."""
        self._settings = settings
        self._client_id = client_id
        self._batch = batch
        self._sleep = sleep
        self._socket: socket | None = None
        self._decoder: Decoder
        #: The broker's CONNACK; None before it.
        self._accepted: Properties | None = None
        self._window = 0
        self._waiting: deque[Outgoing] = deque()
        self._inflight: dict[int, Outgoing] = {}
        self._packet_id = 0
        #: The broker has answered our PINGREQ.
        self._answered = True
        #: Connections lost in a row without a message that arrived.
        self._failures = 0

    def publish(self, messages: Iterable[Outgoing]) -> None:
        """Publish all of them, in their order. At QoS 1 they have all been acknowledged when this returns.

        Raises:
            PublishError: the broker refused one of them, or could not be reached.
            SinkError: the options are not good for connecting.
        """
        try:
            size = 0
            for message in messages:
                self._waiting.append(message)
                size += len(message.payload)
                if len(self._waiting) >= _COLLECTED or size >= _CHUNK:
                    self._work(lambda: not self._waiting)
                    size = 0
            self._work(lambda: not self._waiting)
            if self._socket is not None:
                # at QoS 0 nothing but the answer to a PINGREQ shows that the broker has taken all and refused nothing
                self._answered = self._settings.qos > 0
                self._work(lambda: self._answered and not self._waiting and not self._inflight)
                self._leave()
        finally:
            self._close()

    def _work(self, done: Callable[[], bool]) -> None:
        while not done():
            try:
                if self._socket is None:
                    self._connect()
                if not self._answered:
                    self._send(encode(Pingreq(), Version.V5))
                while not done():
                    self._fill()
                    stuck = not self._waiting or len(self._inflight) >= self._window
                    self._receive(wait=stuck and not done())
            except ConnectionLost as lost:
                self._close()
                self._again(lost)

    def _again(self, lost: ConnectionLost) -> None:
        """Have one more connection, after a while that grows.

        Raises:
            PublishError: there were as many as there may be.
        """
        self._waiting.extendleft(reversed(self._inflight.values()))
        self._inflight.clear()
        self._failures += 1
        host, port = self._settings.address
        if self._failures > self._settings.retries:
            raise PublishError(
                f"{host}:{port}: {lost}; gave up after {self._failures} connections, "
                f"with {len(self._waiting)} messages or more to go"
            ) from None
        self._sleep(min(5.0, 0.1 * 2 ** (self._failures - 1)))

    # The connection

    def _connect(self) -> None:
        settings = self._settings
        self._socket = _connected(settings)
        self._decoder = Decoder(server=False, version=Version.V5, max_packet_size=_MAX_ANSWER, strict_utf8=False)
        self._accepted = None
        self._packet_id = 0
        # No keep-alive: what computes the next rows may take any time, in which no PINGREQ would be sent.
        connect = Connect(
            self._client_id,
            username=settings.username or None,
            password=settings.secret(),
            properties={"maximum_packet_size": _MAX_ANSWER},
        )
        self._send(encode(connect, Version.V5))
        while self._accepted is None:
            self._receive(wait=True)

    def _accept(self, connack: Connack) -> None:
        settings, properties = self._settings, connack.properties
        if connack.reason:
            raise self._refused("refused the connection", connack.reason, properties)
        if settings.qos > properties.get("maximum_qos", 2):
            raise PublishError(f"{settings.host} takes no messages of QoS 1: give the option qos=0")
        if settings.retain and not properties.get("retain_available", 1):
            raise PublishError(f"{settings.host} keeps no retained messages: leave the option retain out")
        self._accepted = properties
        self._window = min(settings.max_inflight, properties.get("receive_maximum", 65_535))

    def _refused(self, what: str, reason: int, properties: Properties) -> Exception:
        text = f"the broker {what}: {_reason(reason, properties)}"
        return ConnectionLost(text) if reason in _PASSING else PublishError(f"{self._settings.host}: {text}")

    def _leave(self) -> None:
        """Disconnect in order, so that the broker does not treat the connection as lost."""
        with suppress(ConnectionLost, OSError):  # all has arrived
            self._send(encode(Disconnect(), Version.V5))
            if self._socket is not None:
                self._socket.shutdown(SHUT_WR)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, data: bytes) -> None:
        """All of it; each piece has the whole timeout."""
        assert self._socket is not None
        rest = memoryview(data)
        try:
            self._socket.settimeout(self._settings.timeout)
            while rest:
                rest = rest[self._socket.send(rest[:_CHUNK]) :]
        except TimeoutError:
            raise ConnectionLost(f"the broker has read nothing for {self._settings.timeout:g} s") from None
        except OSError as error:
            # it may have said why before it closed
            while self._receive(wait=True):
                pass
            raise ConnectionLost(f"connection lost: {error.strerror or error}") from None

    def _receive(self, *, wait: bool) -> bool:
        """Take what the broker has sent, if there is anything; or wait for it."""
        assert self._socket is not None
        try:
            self._socket.settimeout(self._settings.timeout if wait else 0)
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except TimeoutError:
            raise ConnectionLost(f"no answer for {self._settings.timeout:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error.strerror or error}") from None
        if not data:
            raise ConnectionLost("the broker closed the connection")
        packets = self._decoder.feed(data)
        if self._decoder.error is not None:
            raise PublishError(f"{self._settings.host} answers what is not MQTT 5.0: {self._decoder.error}")
        for packet in packets:
            self._take(packet)
        return bool(packets)

    def _take(self, packet: object) -> None:
        match packet:
            case Connack():
                self._accept(packet)
            case Disconnect(reason, properties):
                raise self._refused("closed the connection", reason, properties)
            case _ if self._accepted is None:
                raise ConnectionLost(f"{type(packet).__name__.upper()} where CONNACK was expected")
            case Puback(packet_id, reason, properties):
                message = self._inflight.pop(packet_id, None)
                if message is not None and reason >= 0x80:
                    raise PublishError(f"{_which(message)}: the broker refused it: {_reason(reason, properties)}")
                if message is not None:
                    self._failures = 0
            case Pingresp():
                self._answered = True
            case _:
                pass  # messages of subscriptions that the broker makes for every client

    # Messages

    def _fill(self) -> None:
        """Send what waits, as far as the broker's window has room."""
        out: list[bytes] = []
        size = 0
        while self._waiting and len(self._inflight) < self._window and size < _CHUNK:
            message = self._waiting[0]
            packet_id = self._next_packet_id() if self._settings.qos else 0
            data = self._encoded(message, packet_id)
            self._waiting.popleft()
            if packet_id:
                self._inflight[packet_id] = message
            out.append(data)
            size += len(data)
        if out:
            self._send(b"".join(out))

    def _next_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % MAX_PACKET_ID + 1
            if self._packet_id not in self._inflight:
                return self._packet_id

    def _encoded(self, message: Outgoing, packet_id: int) -> bytes:
        settings = self._settings
        numbers: Properties = {"user_property": [(BATCH, self._batch), (ROW, message.row)]}
        packet = Publish(message.topic, message.payload, settings.qos, settings.retain, numbers, packet_id=packet_id)
        data = encode(packet, Version.V5)
        most = (self._accepted or {}).get("maximum_packet_size", 2**32)
        if len(data) > most:
            raise PublishError(f"{_which(message)}: {len(data)} bytes, and the broker takes {most}")
        return data


def _which(message: Outgoing) -> str:
    return f"row {message.row} to topic {message.topic!r:.200}"


def _reason(reason: int, properties: Properties) -> str:
    """A reason code in words, with the broker's own."""
    string = properties.get("reason_string", "")
    return f"{in_words(reason)} (0x{reason:02X})" + (f" ({string})" if string else "")


def _connected(settings: SinkSettings) -> socket:
    try:
        plain = create_connection(settings.address, settings.timeout)
        plain.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        return _secure(plain, settings) if settings.tls else plain
    except ssl.SSLCertVerificationError as error:
        raise PublishError(f"{settings.host}: its certificate is not trusted: {error.verify_message}") from None
    except OSError as error:
        raise ConnectionLost(f"no connection: {error.strerror or error}") from None


def _secure(plain: socket, settings: SinkSettings) -> socket:
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key or None)
    except (OSError, ssl.SSLError) as error:
        plain.close()
        named = ", ".join(
            f"{name} {getattr(settings, name)}" for name in ("ca", "cert", "key") if getattr(settings, name)
        )
        raise SinkError(f"{named or 'tls'}: {error.strerror or error}") from None
    return context.wrap_socket(plain, server_hostname=settings.host)
