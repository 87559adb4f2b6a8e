"""One connection to a server, without I/O: it is given bytes and times, and keeps what is to be written."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.nats.errors import (
    AuthorizationFailed,
    ConnectionLost,
    NatsError,
    PermissionDenied,
    ProtocolError,
    ServerError,
    StaleConnection,
)
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.decoder import MAX_PAYLOAD, from_server
from trunkline.nats.protocol.operations import PING, PONG, Deliver, Error, Info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.nats.protocol.operations import FromServer, Json

#: Errors of servers behind which they close the connection, or let nobody in, by their words.
_NOT_LET_IN: Final = ("authorization", "authentication", "account authentication", "user authentication")
#: PINGs of a server that reads none of the answers.
MAX_PONGS: Final = 1000
#: Errors after which the connection goes on.
_GOES_ON: Final = ("permissions violation", "invalid subject", "invalid publish subject", "no responders")


class Phase(Enum):
    #: INFO is awaited.
    OPENED = auto()
    #: CONNECT and PING are written, and PONG is awaited.
    GREETED = auto()
    OPEN = auto()
    #: It has ended, or is to be closed.
    OVER = auto()


class Receiver(Protocol):
    def put(self, wire: Deliver) -> None: ...


class Listener(Protocol):
    """Who is told of what is no message."""

    def greeting(self, server: Json) -> Json:
        """What CONNECT says to this server.

        Raises:
            NatsError: nothing, as the server needs what there is not.
        """
        ...

    def informed(self, server: Json) -> None:
        """INFO came once more."""

    def complained(self, error: ServerError) -> None:
        """The server said that something was wrong, and the connection goes on."""


class Connection:
    """`receivers` are found by the id of a subscription, and outlive the connection."""

    def __init__(
        self, listener: Listener, receivers: Mapping[bytes, Receiver], now: float, *, is_encrypted: bool = False
    ) -> None:
        """`is_encrypted`: it begins as plain text, and is encrypted behind INFO, whatever that says."""
        self.phase = Phase.OPENED
        self.server: Json = {}
        #: Why it is over; None if this side has ended it.
        self.error: NatsError | None = None
        #: Of a message with its headers.
        self.max_payload = MAX_PAYLOAD
        #: When something came last.
        self.heard_at = now
        self._listener = listener
        self._receivers = receivers
        self._is_encrypted = is_encrypted
        self._decoder = from_server()
        self._output: list[bytes] = []
        #: Bytes of it.
        self.waiting = 0
        #: Called when there is something to write, and was nothing.
        self.on_output: Callable[[], object] = _nobody
        #: What PONG answers, in order: whom it is called back, or nothing.
        self._pongs: deque[Callable[[], None] | None] = deque()
        #: PONGs among the output.
        self._owed = 0
        #: PINGs of the watch that were not answered.
        self.unanswered = 0

    @property
    def is_settled(self) -> bool:
        """Whether the server has let the client in, or will not."""
        return self.phase in (Phase.OPEN, Phase.OVER)

    # Bytes

    def receive(self, data: bytes, now: float) -> None:
        """What the server has sent; nothing at its end."""
        if self.phase is Phase.OVER:
            return
        if not data:
            self.lost(ConnectionLost("the server has closed the connection"))
            return
        self.heard_at = now
        receivers, operations = self._receivers, self._decoder.feed(data)
        begins_tls = self.phase is Phase.OPENED and bool(operations) and self.begins_tls(operations[0])
        if begins_tls and (len(operations) > 1 or self._decoder.buffered):  # anybody may have said that
            self.lost(ProtocolError("more than INFO came before TLS"))
            return
        for operation in operations:
            if type(operation) is Deliver:
                receiver = receivers.get(operation.sid)
                if receiver is not None:  # it has come behind the end of its subscription
                    receiver.put(operation)
            else:
                self._take(operation)
        if self._decoder.error is not None:
            self.lost(self._decoder.error)

    def begins_tls(self, operation: FromServer | None = None) -> bool:
        """Whether TLS follows this INFO, or the one that has come."""
        server = operation.server if isinstance(operation, Info) else self.server
        return self._is_encrypted or bool(server.get("tls_required"))

    def write(self, data: bytes) -> None:
        if not self.waiting:
            self.on_output()
        self._output.append(data)
        self.waiting += len(data)

    def take_output(self) -> bytes:
        data = b"".join(self._output)
        self._output.clear()
        self.waiting = self._owed = 0
        return data

    # What comes

    def _take(self, operation: FromServer) -> None:
        if operation is PING:
            self._owed += 1
            if self._owed > MAX_PONGS:
                self.lost(StaleConnection("the server reads no answers to its PINGs"))
            self.write(PONG.line)
        elif operation is PONG:
            self._pong()
        elif isinstance(operation, Info):
            self._info(operation.server)
        elif isinstance(operation, Error):
            self._complaint(operation.text)

    def _info(self, server: Json) -> None:
        self.server = server
        size = server.get("max_payload")
        self.max_payload = size if type(size) is int and size > 0 else MAX_PAYLOAD
        if self.phase is Phase.OPENED:
            self.phase = Phase.GREETED
            try:
                greeting = self._listener.greeting(server)
            except NatsError as error:
                self.lost(error)
                return
            except UnicodeError as error:
                self.lost(ProtocolError(f"INFO: {error}"))
                return
            self.write(encoder.connect(greeting))
            self.ping()
        self._listener.informed(server)

    def _pong(self) -> None:
        if not self._pongs:
            self.lost(ProtocolError("PONG, and nobody has asked"))
            return
        if self.phase is Phase.GREETED:
            self.phase = Phase.OPEN
        self.unanswered = 0
        answered = self._pongs.popleft()
        if answered is not None:
            answered()

    def _complaint(self, text: str) -> None:
        text = text or "no reason"
        words = text.lower()
        if words.startswith("permissions violation"):
            self._listener.complained(PermissionDenied(text))
        elif self.phase is Phase.OPEN and words.startswith(_GOES_ON):
            self._listener.complained(ServerError(text))
        elif words.startswith(_NOT_LET_IN):
            self.lost(AuthorizationFailed(text))
        elif words.startswith("stale connection"):
            self.lost(StaleConnection(f"the server says: {text}"))
        else:
            self.lost(ServerError(text))

    # What is asked

    def ping(self, answered: Callable[[], None] | None = None) -> None:
        self._pongs.append(answered)
        self.write(PING.line)

    def watch(self, max_pings: int) -> None:
        """Nothing has come for a while."""
        if self.unanswered >= max_pings:
            self.lost(StaleConnection(f"the server has left {max_pings} PINGs unanswered"))
        elif self.phase is Phase.OPEN:
            self.unanswered += 1
            self.ping()

    def lost(self, error: NatsError | None) -> None:
        """It is over. The first reason counts."""
        if self.phase is not Phase.OVER:
            self.phase = Phase.OVER
            self.error = error
            self._pongs.clear()


def _nobody() -> None:
    """Nobody writes yet."""
