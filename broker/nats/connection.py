"""A connection that speaks NATS, and its client, as one actor: nothing of it outlives the connection."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import trio

from trunkline.actors import Due, Shutdown
from trunkline.broker.connection.lifecycle import HANDSHAKE, TRANSITIONS, ConnectionEvent, ConnectionState
from trunkline.broker.connection.rate_limiter import RateLimiter
from trunkline.broker.metrics import LimitKind
from trunkline.broker.nats.decoder import OperationDecoder
from trunkline.broker.nats.dialogue import Dialogue
from trunkline.broker.nats.login import NatsLogin
from trunkline.broker.nats.pings import Pings
from trunkline.broker.net.protocol import ProtocolActor
from trunkline.broker.net.transport import Ended, Failed, OutputBlocked, OutputDrained
from trunkline.broker.session import mail
from trunkline.broker.transitions import follow
from trunkline.mqtt.reasons import Reason
from trunkline.nats.protocol.operations import PING, PONG, Connect, Publish, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Timer
    from trunkline.broker.nats.client import NatsClient
    from trunkline.broker.nats.nats_listener import NatsListener
    from trunkline.broker.net.transport import Event, Transport
    from trunkline.broker.rate_limits import ClientLimits
    from trunkline.broker.routes import Subscriber
    from trunkline.mqtt.publication import Publication
    from trunkline.nats.protocol.operations import FromClient
    from trunkline.router import Target

#: Deliveries, reports of the transport, what sessions get from others, and operations that could not be handed over.
Mail: TypeAlias = Any

_logger = logging.getLogger("trunkline.connection")


class NatsConnection(ProtocolActor["Mail"]):
    __slots__ = (
        "_decoder",
        "_dialogue",
        "_gone",
        "_holders",
        "_last_read",
        "_limiter",
        "_listener",
        "_login",
        "_on_closed",
        "_pings",
        "_timer",
        "_transport",
        "client",
        "state",
    )

    def __init__(
        self, listener: NatsListener, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]
    ) -> None:
        self._listener = listener
        self._transport = transport
        self._on_closed = on_closed
        self.state = ConnectionState.AWAITING_CONNECT
        self._decoder = OperationDecoder(listener.config.nats.max_control_line, listener.max_payload)
        #: The client that was accepted.
        self.client: NatsClient | None = None
        #: It has left, and messages for it may be in the mailbox.
        self._gone: NatsClient | None = None
        #: The holders of a pause; None while reading.
        self._holders: set[object] | None = None
        #: None where nothing limits what may be read.
        self._limiter: RateLimiter | None = None
        self._last_read = 0.0

    def init(self) -> None:
        listener = self._listener
        self._dialogue = Dialogue(self, self._transport, listener)
        #: None once the client is accepted, and when it is over.
        self._login: NatsLogin | None = NatsLogin(self._dialogue, listener, self._transport, self._accept)
        self._pings = Pings(self._transport)
        self._last_read = trio.current_time()  # a start may be outside of the scheduler's turns
        limits = listener.limits
        if limits.pauses and not limits.is_unlimited:
            report = listener.services.limit_report
            self._limiter = RateLimiter(self, self._decoder, limits.of_connection(), report)
        self._transport.start(self.receive if self._limiter is None else self._limiter.receive, self)
        self._transport.send(listener.info(self._transport.peer))
        self._timer: Timer = self.call_at(self._last_read + listener.config.mqtt.connect_timeout, self._on_deadline)

    # Mail

    def handle_many(self, messages: list[Mail]) -> None:
        for number, message in enumerate(messages, 1):
            try:
                if type(message) is not tuple:
                    self._mail[type(message)](self, message)
                elif self.client is not None:
                    publication, target = cast("tuple[Publication, Target[Subscriber]]", message)
                    self.client.delivering.deliver(publication, target)
                elif self._gone is not None:
                    self._gone.delivering.lose(message)
            except Exception:
                self.undelivered(messages[number:])
                raise
        self._dialogue.flush()

    def undelivered(self, messages: list[Mail]) -> None:
        client = self.client or self._gone
        if client is not None:
            for message in messages:
                client.delivering.lose(message)

    def handle_handed(self, message: list[FromClient]) -> None:
        """Operations overtake no delivery: UNSUB and PING come behind the messages that were there before."""
        self._dialogue.take(message)
        self._dialogue.flush()

    _mail: ClassVar[dict[type, Callable[[NatsConnection, Any], object]]] = {
        list: lambda self, operations: self._dialogue.take(operations),
        Due: lambda _, message: message.action(),
        Ended: lambda self, message: self._ended(message),
        Failed: lambda self, message: self._failed(message),
        OutputBlocked: lambda self, _: self._on_blocked(),
        OutputDrained: lambda self, _: self._on_drained(),
        mail.Pause: lambda self, message: self.pause(message.holder),
        mail.Resume: lambda self, message: self.resume(message.holder),
        mail.Kick: lambda self, message: self.close("", message.reason, message.text),
        mail.End: lambda self, message: self.close("", message.reason, message.cause),
        mail.UnsubscribeFor: lambda self, message: _unsubscribe(self.client, message),
        mail.RulesChanged: lambda self, message: _check_access(self.client, message),
        mail.PublishWill: lambda _, __: None,  # there are none
        mail.LogPackets: lambda _, __: None,  # these are packets of MQTT
    }

    # Bytes

    def receive(self, data: Event) -> None:
        """The transport calls this in a poller's turn."""
        if not isinstance(data, bytes):
            self.ref.cast(data)
            return
        self._last_read = self.scheduler.now
        if self.state is ConnectionState.CLOSING:
            return
        operations = self._decoder.feed(data)
        if not operations and self.state is ConnectionState.AWAITING_CONNECT:
            words = self._decoder.another_protocol(data)
            if words:  # the client closes when it has read INFO, or waits
                self._listener.failures.note(self._listener.name, self.peer, Failed(words))
        if (operations or self._decoder.error is not None) and not self.ref.hand(operations):
            self.ref.cast(operations)

    def pause(self, holder: object) -> None:
        """Read no more until every holder has resumed."""
        if self.state is ConnectionState.CLOSING:
            return
        if self._holders is None:
            self._holders = set()
            self._transport.pause()
        self._holders.add(holder)

    def resume(self, holder: object) -> None:
        if self._holders is not None:
            self._holders.discard(holder)
            if not self._holders:
                self._holders = None
                # the client could not be read from. In a task, the scheduler's time would be that of its last step
                self._last_read = trio.current_time()
                self._transport.resume()

    def _on_blocked(self) -> None:
        pending, client, most = self._transport.pending, self.client, self._listener.config.nats.max_pending
        if self.state is ConnectionState.CLOSING:
            return
        if client is not None and pending > most:
            self.cut_off()
        elif pending > most // 2:
            self.pause(self)  # it sends requests and does not read the answers

    def cut_off(self) -> None:
        if self.client is not None:
            limit = f"nats.max_pending = {self._listener.config.nats.max_pending}"
            report = self._listener.services.limit_report
            report.acted(LimitKind.NATS_PENDING, self.client.client.client_id, limit)
            self._leave(Reason.QUOTA_EXCEEDED, "a slow consumer")
            self._transport.reset()  # it does not read what it would be told

    def _on_drained(self) -> None:
        self.resume(self)
        if self.client is not None:
            self.client.drained()

    # Operations

    def operate(self, operation: FromClient) -> None:
        if self._login is not None:
            self._log_in(operation)
        elif self.client is None:
            return  # it is over
        elif type(operation) is Publish:
            self.client.publishing.publish(operation)
        elif type(operation) is Subscribe:
            self.client.subscriptions.subscribe(operation)
        elif type(operation) is Unsubscribe:
            self.client.subscriptions.unsubscribe(operation)
        elif operation is PING:
            self._dialogue.pieces.append(PONG.line)
        elif operation is PONG:
            self._pings.unanswered = 0
        elif type(operation) is Connect:
            self.client.change(operation.options)

    def _log_in(self, operation: FromClient) -> None:
        """With the first operation, whatever it is."""
        self.state = follow(TRANSITIONS, self.state, ConnectionEvent.CONNECT)
        login = self._login
        assert login is not None
        if type(operation) is Connect:
            login.connect(operation.options)
        else:
            self._dialogue.put_back(operation)
            login.connect(None)

    def all_done(self) -> None:
        error = self._decoder.error
        if error is not None:
            self._listener.services.metrics.packets_malformed += 1
            self.close(error.answer, Reason.MALFORMED_PACKET, str(error))

    # Its life

    def _accept(self, client: NatsClient, limits: ClientLimits | None) -> None:
        self.state = follow(TRANSITIONS, self.state, ConnectionEvent.ACCEPT)
        self._login = None
        self.client = client
        if self._limiter is not None:
            self._limiter.whom = client.client.client_id
            if limits is not None:
                self._limiter.buckets.add(limits.messages, limits.bytes)
        self._timer.restart_at(trio.current_time() + self._listener.config.nats.ping_interval)
        client.enter()

    def _on_deadline(self) -> None:
        if self.state is ConnectionState.CLOSING:
            self.stop()  # the client does not close after our last line
        elif self.client is None:
            host, timeout = self.peer[0] if self.peer else "local", self._listener.config.mqtt.connect_timeout
            report = self._listener.services.limit_report
            report.acted(LimitKind.CONNECT_TIMEOUT, host, f"connect_timeout = {timeout:g}s")
            self.close("Authentication Timeout", Reason.NOT_AUTHORIZED, "no CONNECT came in time")
        else:
            if self._holders is not None and self not in self._holders:
                self._last_read = self.scheduler.now  # the broker keeps it waiting, unless it does not read its answers
            settings = self._listener.config.nats
            if self._pings.is_stale(self._last_read, self.scheduler.now, settings):
                self.close("Stale Connection", Reason.KEEP_ALIVE_TIMEOUT, "the client has not answered PING")
            else:
                self._timer.restart_at(self._pings.next_at(self._last_read, settings))

    def close(self, farewell: str, reason: Reason, text: str) -> None:
        """Say why, if anything is to be said; then let the client close first, so that it can read it."""
        if self.state is ConnectionState.CLOSING:
            return
        if farewell:
            self._dialogue.complain(farewell)
        self._dialogue.flush()
        self._leave(reason, text)
        self._transport.finish()

    def _leave(self, reason: Reason, text: str) -> None:
        """The connection ends: the client has gone, and nothing more is taken from it."""
        self._dialogue.is_over = True
        client, self.client = self.client, None
        if client is not None:
            self._gone = client
            client.leave(reason, text)
        if self.state is ConnectionState.CLOSING:
            return
        self.state = follow(TRANSITIONS, self.state, ConnectionEvent.CLOSE)
        self._login = None
        if self._limiter is not None:
            self._limiter.stop()
        if self._holders is not None:
            self._holders = None
            self._transport.resume()
        self._timer.restart_at(trio.current_time() + self._listener.config.mqtt.linger)

    def _ended(self, message: Ended) -> None:
        lost = f"the connection was lost: {message.error}" if message.error else "the client closed the connection"
        self._leave(Reason.UNSPECIFIED_ERROR if message.error else Reason.SUCCESS, lost)
        self.stop()

    def _failed(self, failure: Failed) -> None:
        """A layer refuses what the client sent, or the client itself."""
        if self.state is not ConnectionState.CLOSING:
            self._listener.failures.note(self._listener.name, self.peer, failure)
            self.close("", Reason.UNSPECIFIED_ERROR, failure.problem)

    def terminate(self, reason: BaseException | None) -> None:
        is_crash = reason is not None and not isinstance(reason, Shutdown)
        if is_crash:
            fields = {} if self.client is None else self.client.client.log_fields
            _logger.error("the client is disconnected after an error in the broker: %r", reason, extra=fields)
        self._leave(Reason.UNSPECIFIED_ERROR, "internal error" if is_crash else "closed")
        self.state = follow(TRANSITIONS, self.state, ConnectionEvent.END)
        self._timer.discard()  # they refer to each other
        if self._limiter is not None:
            self._limiter.discard()
            self._limiter = None
        self._on_closed(self)
        self._transport.close()
        self._holders = self._gone = None
        # they refer to this connection: otherwise only the garbage collector could free them
        del self._transport, self._dialogue, self._pings

    # What its listener asks

    @property
    def peer(self) -> tuple[str, int] | None:
        return self._transport.peer

    @property
    def in_handshake(self) -> bool:
        return self.state in HANDSHAKE

    @property
    def is_closing(self) -> bool:
        return self.state is ConnectionState.CLOSING

    def follow_settings(self) -> None:
        if self.client is not None:
            self.client.enter_zone(self._listener.config)

    @property
    def pending(self) -> int:
        return self._transport.pending

    @property
    def is_paused(self) -> bool:
        return self._holders is not None

    @property
    def held_packet(self) -> tuple[int, int] | None:
        decoder = self._decoder
        return (decoder.completed, decoder.buffered) if self.client is not None and decoder.buffered else None

    def end_slow_packet(self, limit: str) -> None:
        if self.client is not None:
            client_id = self.client.client.client_id
            self._listener.services.limit_report.acted(LimitKind.SLOW_PACKETS, client_id, limit)
            close = partial(self.close, "", Reason.QUOTA_EXCEEDED, "an operation came too slowly")
            self._dialogue.soon(close)

    def disconnect(self) -> None:
        if self.client is not None:
            close = partial(self.close, "", Reason.ADMINISTRATIVE_ACTION, "its listener is closed")
            self._dialogue.soon(close)
        elif self.in_handshake:
            self.ref.stop()


def _unsubscribe(client: NatsClient | None, message: mail.UnsubscribeFor) -> None:
    if client is not None:
        client.subscriptions.end_all(message.filters)


def _check_access(client: NatsClient | None, message: mail.RulesChanged) -> None:
    if client is not None:
        client.rules_changed(message.subscriptions)
