"""TLS as a layer: an `SSLObject` between two memory buffers, which all connections of a listener share.

OpenSSL reads all that comes, keeps the beginning of a record itself, and what it writes leaves at once: so the buffers
are empty between two calls, and an idle connection has none that a burst has made large.

All output of a turn is encrypted at its end, in as few records as possible, and leaves in one write. The expensive part
is the handshake, of up to some milliseconds: a listener's clients take turns, and wait for theirs while the messages of
other connections pass.
"""

from __future__ import annotations

import ssl
from collections import deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.net.other_protocols import guess_in_clear
from trunkline.broker.net.tls_context import Ambiguous
from trunkline.broker.net.transport import WRITTEN_AT_ONCE, Ended, Failed, Layer

if TYPE_CHECKING:
    from trunkline.actors import Actor, Ref, Scheduler, Timer
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.net.tls_context import TlsContext
    from trunkline.broker.net.transport import Event, Receiver, Transport
    from trunkline.hooks.identity import Identity

#: Seconds of a turn after which no further handshake gets its step.
MAX_STEPPING: Final = 0.001
#: Bytes of a client that may wait for the step of its handshake before nothing more is read from it.
MAX_UNSTEPPED: Final = 65_536
#: Most bytes that a record holds: a read never brings more.
MAX_RECORD: Final = 16_384
CUT_OFF: Final = "closed without a TLS close_notify"

#: The words for frequent errors; OpenSSL's own names stand for all others.
_WORDS: Final = {
    "NO_SHARED_CIPHER": "the client offers no cipher suite that this listener accepts",
    "UNSUPPORTED_PROTOCOL": "the client offers no TLS version that this listener accepts",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS",
    "HTTP_REQUEST": "this looks like HTTP without TLS",
    "CALLBACK_FAILED": "the client asks for a server name that is not ASCII",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate (unknown authority)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client rejects the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client rejects the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client finds the broker's certificate expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client does not speak this TLS version",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the client reports that the handshake has failed",
}


def words(error: ssl.SSLError) -> str:
    """The reason of an error for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the client's certificate is not accepted"
    reason = error.reason or ""
    return _WORDS.get(reason, reason.replace("_", " ").lower() or str(error))


class TlsServer:
    """The TLS connections of one listener."""

    def __init__(self, context: TlsContext, scheduler: Scheduler, metrics: Metrics) -> None:
        #: What new connections use. A reload replaces it.
        self.context = context
        self.scheduler = scheduler
        self.metrics = metrics
        #: Between OpenSSL and the connections, for one connection at a time: empty between two calls of a layer.
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        #: Connections in their handshake that wait for their client, in the order in which they began to wait.
        self.waiting: dict[TlsLayer, None] = {}
        #: Connections in their handshake whose client has sent something.
        self._ready: deque[TlsLayer] = deque()
        self._stepping = scheduler.call_at(inf, self._step)

    def layer(self, below: Transport) -> TlsLayer:
        """The `LayerFactory` of the listener."""
        return TlsLayer(below, self)

    def wait(self, layer: TlsLayer) -> None:
        """Its client is to send something."""
        self.waiting[layer] = None
        if len(self.waiting) > self.context.settings.max_handshakes:
            next(iter(self.waiting)).fail("too many handshakes wait for their clients")

    def queue(self, layer: TlsLayer) -> None:
        """Its client has sent something."""
        del self.waiting[layer]
        self._ready.append(layer)
        if not self._stepping.armed:
            self._stepping.restart_at(self.scheduler.now)

    def forget(self, layer: TlsLayer) -> None:
        """Its handshake is over."""
        self.waiting.pop(layer, None)

    def clear(self) -> None:
        """After an error: what is left is nobody's."""
        self.incoming.read()
        self.outgoing.read()

    def _step(self) -> None:
        over = perf_counter() + MAX_STEPPING
        while self._ready:
            layer = self._ready.popleft()
            try:
                layer.step()
            except Exception as error:  # noqa: BLE001 - the connection's end is the handling
                self.scheduler.blame(layer.owner, layer.step, error)
            if perf_counter() >= over:
                break
        if self._ready:
            self._stepping.restart_at(self.scheduler.now)


class TlsLayer(Layer):
    """The server's side of one TLS connection."""

    __slots__ = (
        "_can_send",
        "_context",
        "_established",
        "_held",
        "_identity",
        "_over",
        "_paused",
        "_plain",
        "_psk",
        "_server",
        "_timer",
        "_tls",
        "_unread",
        "_unstepped",
        "owner",
    )

    def __init__(self, below: Transport, server: TlsServer) -> None:
        super().__init__(below)
        self._server = server
        #: Bytes of the client that wait for the next step of the handshake.
        self._unread = b""
        #: Made with the client's first bytes: a port scan costs nothing.
        self._tls: ssl.SSLObject | None = None
        self._established = False
        #: False when nothing can be sent any more.
        self._can_send = True
        #: Nothing more is passed on.
        self._over = False
        self._paused = False
        #: Reading stopped until the handshake gets its step.
        self._held = False
        #: The handshake is to get its step.
        self._unstepped = False
        #: Output that is not encrypted yet.
        self._plain: list[bytes] = []
        self._psk = ""
        self._identity: Identity | None = None
        self.owner: Ref[Any] | None = None

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.owner = owner.ref
        limit = trio.current_time() + self._server.context.settings.handshake_timeout
        self._timer: Timer = owner.call_at(limit, self.fail, "it was not completed in time")
        super().start(receiver, owner)
        self._server.wait(self)

    @property
    def identity(self) -> Identity | None:
        """That of this handshake if it names the client. Otherwise the other side may be a load balancer, which knows
        more of the client."""
        own = self._identity
        if own is not None and (own.username or own.client_id):
            return own
        return self.below.identity or own

    # Handshake

    def _feed_handshake(self, data: bytes) -> None:
        if self._tls is None and not self._unread and data[0] != 0x16:  # a TLS handshake record
            self.fail(guess_in_clear(data) or "this is not TLS")
            return
        self._unread += data
        if not self._unstepped:
            self._unstepped = True
            self._server.queue(self)
        if len(self._unread) > MAX_UNSTEPPED and not self._held:
            self._held = True
            self.below.pause()

    def step(self) -> None:
        """Go on with the handshake."""
        if not self._unstepped:
            return  # it has failed meanwhile
        self._unstepped = False
        server = self._server
        if self._tls is None:
            self._context = server.context
            self._tls = self._context.wrap(server.incoming, server.outgoing)
        context = self._context
        server.incoming.write(self._unread)
        self._unread = b""
        try:
            complete, psk = context.handshake(self._tls)
            self._psk = psk or self._psk
            if complete:
                self._identity = context.identity(self._tls, self._psk)
        except ssl.SSLError as error:
            server.incoming.read()  # what follows is nobody's
            self._flush()  # the alert
            self.fail(words(error), error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else "")
            return
        except Ambiguous as error:
            server.clear()
            self.fail(str(error))
            return
        except BaseException:
            server.clear()
            raise
        if not complete:
            self._flush()
            server.wait(self)
        else:
            self._established = True
            self._timer.discard()
            server.metrics.tls_handshakes += 1
            self._read()
            self.end_turn()
        if self._held:
            self._held = False
            if not self._paused:
                self.below.resume()

    def fail(self, why: str, detail: str = "") -> None:
        """The handshake has failed."""
        self._stop()
        self._server.metrics.tls_handshakes_failed += 1
        self.above(Failed(f"TLS handshake: {why}", detail))

    def _stop(self) -> None:
        """Pass on nothing more."""
        if not self._established:
            self._server.forget(self)
            self._timer.discard()
        self._over = True
        self._unstepped = self._can_send = False
        self._unread = b""
        self._plain.clear()
        if self._held:
            self._held = False
            self.below.resume()  # for the end

    # From the client

    def receive(self, event: Event) -> None:
        if self._over:
            if isinstance(event, Ended):
                self.above(event)
        elif isinstance(event, bytes):
            if self._established:
                self._server.incoming.write(event)
                self._read()
            else:
                self._feed_handshake(event)
        elif not isinstance(event, Ended):
            self.above(event)
        elif self._established:
            self._can_send = False
            self.above(event if event.error else Ended(CUT_OFF))
        elif self._unstepped:
            self.step()  # its last bytes came before the end
            self.receive(event)
        else:
            if self._tls is not None:
                self.fail("the client ended the connection", event.error)
            self._stop()  # without bytes it was a port scan, or a health check
            self.above(event)

    def _read(self) -> None:
        """Pass on all complete records, in one piece. Nothing is sent or passed on before the buffer is empty: it is
        for others, too."""
        incoming, tls = self._server.incoming, self._tls
        assert tls is not None
        data = b""
        ended: Ended | Failed | None = None
        more: list[bytes] | None = None
        try:
            while size := incoming.pending or tls.pending():
                part = tls.read(min(size, MAX_RECORD))
                if not part:
                    ended = Ended("")  # close_notify
                    break
                if not data:
                    data = part
                elif more is None:
                    more = [data, part]
                else:
                    more.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = Ended("")
        except ssl.SSLError as error:
            ended = Failed(f"TLS: {words(error)}")
        except BaseException:
            self._server.clear()
            raise
        if incoming.pending:
            incoming.read()  # behind the end
        self._flush()  # the end of a handshake, an alert, or the answer to a new key
        if data:
            self.above(data if more is None else b"".join(more))
        if ended is not None:
            self._over = True
            if isinstance(ended, Failed):
                self._can_send = False
                self._plain.clear()  # OpenSSL encrypts nothing more
            self.above(ended)

    # To the client

    def send(self, data: bytes) -> None:
        if not self._can_send:
            return
        plain = self._plain
        plain.append(data)
        if len(plain) > 1:
            return
        if len(data) < WRITTEN_AT_ONCE:
            self._server.scheduler.at_end(self)
        else:
            self.end_turn()

    def send_now(self, data: bytes) -> None:
        self.send(data)
        self.end_turn()

    def end_turn(self) -> None:
        """Encrypt the output of this turn, and send it."""
        plain = self._plain
        if not plain or not self._established:
            return
        assert self._tls is not None
        try:
            self._tls.write(plain[0] if len(plain) == 1 else b"".join(plain))
        except BaseException:
            self._server.clear()
            raise
        finally:
            plain.clear()
        self._flush()

    def _flush(self) -> None:
        """Send what OpenSSL has written."""
        outgoing = self._server.outgoing
        if outgoing.pending:
            data = outgoing.read()
            if self._can_send:
                self.below.send_now(data)

    @property
    def pending(self) -> int:
        return sum(map(len, self._plain)) + self.below.pending

    def pause(self) -> None:
        self._paused = True
        self.below.pause()

    def resume(self) -> None:
        self._paused = False
        if not self._held:
            self.below.resume()

    def finish(self) -> None:
        self._close_output()
        self.below.finish()

    def _close_output(self) -> None:
        """Send the rest, and close_notify."""
        if self._can_send and self._established:
            assert self._tls is not None
            self.end_turn()
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it waits for the client's own, or the client has broken the protocol
            finally:
                self._flush()
                self._can_send = False

    def reset(self) -> None:
        self.end_turn()
        self._can_send = False
        self.below.reset()

    def close(self) -> None:
        self._close_output()
        if not self._established:
            self._stop()
        self._server.forget(self)
        self._tls = None
        self._established = False
        self._over = True
        super().close()
