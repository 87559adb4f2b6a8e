"""A network connection as an actor: from its first byte to its last.

It decodes what comes in and hands each read's packets to its session in one cast; what the session sends in a turn
leaves in one write. After the end it lingers: the peer must be able to read the last packet before the socket is torn
down.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import trio

from trunkline.broker.connection.handshake import Handshake
from trunkline.broker.connection.lifecycle import HANDSHAKE, TRANSITIONS, ConnectionEvent, ConnectionState
from trunkline.broker.connection.mountpoint import MountedDecoder, MountedOutput
from trunkline.broker.connection.packet_log import LoggedDecoder, PacketLog, SentLog, logs_all
from trunkline.broker.connection.rate_limiter import CountingDecoder, RateLimiter
from trunkline.broker.metrics import LimitKind
from trunkline.broker.net.protocol import ProtocolActor
from trunkline.broker.net.transport import Ended, Failed, OutputBlocked, OutputDrained, discard
from trunkline.broker.session import mail
from trunkline.broker.session.channel import nothing_unread
from trunkline.broker.session.waiting import say_goodbye
from trunkline.broker.transitions import follow
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Timer
    from trunkline.broker.connection.mountpoint import Mountpoint
    from trunkline.broker.connection.mqtt_listener import MqttListener
    from trunkline.broker.net.transport import Event, Transport
    from trunkline.broker.rate_limits import ClientLimits
    from trunkline.broker.session.channel import Channel
    from trunkline.hooks.identity import Identity
    from trunkline.mqtt.errors import ProtocolError
    from trunkline.mqtt.publication import Decoded

#: Maximum bytes of a CONNECT, whose sender is not known yet: enough for a will with properties.
MAX_CONNECT_SIZE: Final = 1_048_576
#: Bytes of answers that may wait for a client before nothing more is read from it.
OUTPUT_LIMIT: Final = 1_048_576


class CheckKeepAlive:
    """To itself: check whether the client has been silent for too long."""

    __slots__ = ()


CHECK_KEEP_ALIVE: Final = CheckKeepAlive()

#: What a transport reports, other than bytes.
Report: TypeAlias = "Ended | Failed | OutputBlocked | OutputDrained"
Mail: TypeAlias = "Report | mail.Close | mail.Pause | mail.Resume | CheckKeepAlive | mail.LogPackets"


class Connection(ProtocolActor["Mail"]):
    __slots__ = (
        "_channel",
        "_decoder",
        "_handshake",
        "_holders",
        "_last_read",
        "_limiter",
        "_listener",
        "_max_silence",
        "_on_closed",
        "_timer",
        "_transport",
        "state",
    )

    def __init__(
        self, listener: MqttListener, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]
    ) -> None:
        self._listener = listener
        self._transport = transport
        self._on_closed = on_closed
        self.state = ConnectionState.AWAITING_CONNECT
        mqtt = listener.config.mqtt
        limits = listener.limits
        kind = CountingDecoder if limits.pauses and not limits.is_unlimited else Decoder
        self._decoder: Decoder | LoggedDecoder | MountedDecoder = kind(
            max_packet_size=mqtt.max_packet_size,
            max_connect_size=MAX_CONNECT_SIZE,
            max_levels=mqtt.max_topic_levels,
            max_filters=mqtt.max_filters,
            strict_utf8=mqtt.strict_utf8,
            gathers=not listener.mountpoint,
        )
        #: None when it is over.
        self._handshake: Handshake | None = Handshake(self, listener)
        self._channel: Channel | None = None
        #: The holders of a pause; None while reading.
        self._holders: set[object] | None = None
        #: None where nothing limits what may be read.
        self._limiter: RateLimiter | None = None
        #: When the last bytes came, in node time, and the longest silence allowed.
        self._last_read = 0.0
        self._max_silence = mqtt.connect_timeout
        if logs_all():
            self.log_packets(ClientInfo("", peer=self.peer, listener=listener.name), logging.DEBUG)

    def follow(self, event: ConnectionEvent) -> None:
        """
        Raises:
            ImpossibleTransition: an error in the broker.
        """
        self.state = follow(TRANSITIONS, self.state, event)

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client. A layer may know them only when the first bytes have come."""
        return self._transport.peer

    @property
    def identity(self) -> Identity | None:
        """What layers know of the client; they do before its CONNECT."""
        return self._transport.identity

    def init(self) -> None:
        self._last_read = trio.current_time()  # a start may be outside of the scheduler's turns
        decoder = self._decoder.inner if isinstance(self._decoder, LoggedDecoder) else self._decoder
        if isinstance(decoder, CountingDecoder):
            limits, report = self._listener.limits, self._listener.services.limit_report
            self._limiter = RateLimiter(self, decoder, limits.of_connection(), report)
        self._transport.start(self.receive if self._limiter is None else self._limiter.receive, self)
        self._timer: Timer = self.call_at(self._last_read + self._max_silence, self._on_deadline)

    def handle(self, message: Mail) -> None:
        if isinstance(message, Ended):
            self._ended(message.error)
        elif isinstance(message, OutputBlocked):
            if self._channel is not None:
                self._channel.session(mail.Congested(self._channel))
            if self._transport.pending > OUTPUT_LIMIT:
                # it sends requests and does not read the answers
                if self._channel is not None and self not in (self._holders or ()):
                    client_id, limit = self._channel.client.client_id, f"{OUTPUT_LIMIT} bytes of output wait"
                    self._listener.services.limit_report.acted(LimitKind.OUTPUT, client_id, limit)
                self.pause(self)
        elif isinstance(message, OutputDrained):
            self.resume(self)
            if self._channel is not None:
                self._channel.session(mail.Writable(self._channel))
        elif isinstance(message, mail.Close):
            self.close(message.farewell)
        elif isinstance(message, mail.Pause):
            self.pause(message.holder)
        elif isinstance(message, mail.Resume):
            self.resume(message.holder)
        elif isinstance(message, Failed):
            self._failed(message)
        elif isinstance(message, mail.LogPackets):
            self.log_packets(message.client if message.on else None, logging.INFO)
        else:
            self._check_keep_alive()

    # Bytes

    def receive(self, data: Event) -> None:
        """The transport calls this in a poller's turn: bytes take no place in the mailbox."""
        if not isinstance(data, bytes):
            self.ref.cast(data)
            return
        self._last_read = self.scheduler.now
        channel, decoder = self._channel, self._decoder
        if channel is not None:
            packets = decoder.feed(data)
            if packets or decoder.error is not None:
                hand = channel.hand  # as in the poller
                if not hand((channel, packets, decoder.error)):
                    channel.session(mail.Received(channel, packets, decoder.error))
        elif self._handshake is not None:
            packets = decoder.feed(data)
            if packets or decoder.error is not None:
                self._handshake.received(packets, decoder.error, decoder.version, data)

    def _says_goodbye(self) -> bool:
        """Whether a DISCONNECT that cancels the will is among what has come and was not read yet, as of a client that
        is held up. It is one read at most, which goes to the session as any other: its connection may go on."""
        channel, decoder = self._channel, self._decoder
        assert channel is not None
        held = b"" if self._limiter is None else self._limiter.take_held()
        received = mail.Received(channel, decoder.feed(held + self._transport.take_unread()), decoder.error)
        if received.packets or received.error is not None:
            channel.session(received)
        return say_goodbye(received.packets)

    def write(self, data: bytes) -> None:
        """Send a packet of the connection itself."""
        self._transport.send(data)

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

    def log_packets(self, client: ClientInfo | None, level: int) -> None:
        """Log the packets of this client from now on; None stops that."""
        if isinstance(self._decoder, LoggedDecoder):
            self._decoder = self._decoder.inner
            self._decoder.gathers = not self._listener.mountpoint
            self._transport = cast("SentLog", self._transport).below
        if client is not None:
            log = PacketLog(client, level)
            self._transport = SentLog(self._transport, self._decoder, log)
            self._decoder = LoggedDecoder(self._decoder, log)
        if self._channel is not None:
            self._channel.send = self._transport.send

    def mount(self, mountpoint: Mountpoint) -> None:
        """From now on the client's topics have this prefix, which logged packets show, too."""
        if isinstance(self._decoder, LoggedDecoder):
            self._decoder.inner = MountedDecoder(self._decoder.inner, mountpoint)
            log = cast("SentLog", self._transport)
            log.below = MountedOutput(log.below, mountpoint)
        else:
            self._decoder = MountedDecoder(self._decoder, mountpoint)
            self._transport = MountedOutput(self._transport, mountpoint)

    @property
    def pending(self) -> int:
        return self._transport.pending

    # Its life

    @property
    def is_closing(self) -> bool:
        return self.state is ConnectionState.CLOSING

    @property
    def in_handshake(self) -> bool:
        return self.state in HANDSHAKE

    def follow_settings(self) -> None:
        """The listener has other settings."""
        if self._channel is not None:
            self._channel.config = self._listener.config

    def open(self, channel: Channel, keep_alive: int, early: list[Decoded], error: ProtocolError | None) -> None:
        """The client is accepted. Packets that it sent meanwhile go to its session."""
        self.follow(ConnectionEvent.ACCEPT)
        self._handshake = None
        self._channel = channel
        channel.send = self._transport.send
        channel.says_goodbye = self._says_goodbye
        if early or error is not None:
            channel.session(mail.Received(channel, early, error))
        if keep_alive:
            self._max_silence = keep_alive * self._listener.config.mqtt.keep_alive_multiplier
            self._timer.restart_at(self._last_read + self._max_silence)
        else:
            self._max_silence = inf
            self._timer.cancel()

    @property
    def is_paused(self) -> bool:
        return self._holders is not None

    @property
    def held_packet(self) -> tuple[int, int] | None:
        decoder = self._decoder
        return (decoder.resumed, decoder.buffered) if self._channel is not None and decoder.buffered else None

    def end_slow_packet(self, limit: str) -> None:
        channel = self._channel
        if channel is not None:
            self._listener.services.limit_report.acted(LimitKind.SLOW_PACKETS, channel.client.client_id, limit)
            channel.session(mail.Kick(Reason.QUOTA_EXCEEDED, "a packet came too slowly", channel))

    def disconnect(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.session(mail.Kick(Reason.ADMINISTRATIVE_ACTION, "its listener is closed", channel))
        elif self.in_handshake:
            self.ref.stop()

    def limit_client(self, client_id: str, limits: ClientLimits | None) -> None:
        """The client id is known, and with it perhaps further limits."""
        if self._limiter is not None:
            self._limiter.whom = client_id
            if limits is not None:
                self._limiter.buckets.add(limits.messages, limits.bytes)

    def close(self, farewell: bytes) -> None:
        """Send the last bytes, then let the peer close first, so that it can read them."""
        if self.state is ConnectionState.CLOSING:
            return
        if farewell:
            self.write(farewell)
        self.follow(ConnectionEvent.CLOSE)
        self._handshake = None
        self._leave_session()
        if self._limiter is not None:
            self._limiter.stop()
        if self._holders is not None:
            self._holders = None
            self._transport.resume()
        self._transport.finish()
        self._max_silence = self._listener.config.mqtt.linger
        self._last_read = trio.current_time()
        self._timer.restart_at(self._last_read + self._max_silence)

    def _on_deadline(self) -> None:
        """The timer fires: the client may have been silent for too long."""
        now = self.scheduler.now
        if self._holders is not None and self not in self._holders:
            self._last_read = now  # the broker keeps it waiting, unless it does not read its answers
        if self._channel is not None and now < self._last_read + self._max_silence:
            self._timer.restart_at(self._last_read + self._max_silence)
        else:
            # After a pause of the process, packets that the client sent in time are still unread.
            self._transport.read_now()
            self.scheduler.later(self.ref, CHECK_KEEP_ALIVE)

    def _check_keep_alive(self) -> None:
        """Everything that had come when the timer fired has been handled."""
        if self._timer.armed or self._max_silence == inf:
            return  # the CONNECT came, or the end
        if self._handshake is not None and self.state is ConnectionState.AUTHENTICATING:
            self._handshake.give_up()
        elif self._channel is None:
            if self._handshake is not None:
                host, timeout = self.peer[0] if self.peer else "local", f"connect_timeout = {self._max_silence:g}s"
                self._listener.services.limit_report.acted(LimitKind.CONNECT_TIMEOUT, host, timeout)
            self.stop()  # its CONNECT did not come in time, or it does not close after our last packet
        elif self.scheduler.now < self._last_read + self._max_silence:
            self._timer.restart_at(self._last_read + self._max_silence)
        else:  # [MQTT-3.1.2-22]
            self._channel.session(mail.Kick(Reason.KEEP_ALIVE_TIMEOUT, "the client was silent", self._channel))

    def _leave_session(self) -> Channel | None:
        """Pass on nothing more, in either direction. Returns the channel, if there was one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.send = discard
            channel.says_goodbye = nothing_unread
        return channel

    def _ended(self, error: str) -> None:
        channel = self._leave_session()
        if channel is not None:
            lost = f"the connection was lost: {error}"
            text = lost if error else "the client closed the connection without a DISCONNECT"
            channel.session(mail.Lost(channel, Reason.UNSPECIFIED_ERROR, text))
        self.stop()

    def _failed(self, failure: Failed) -> None:
        """A layer refuses what the client sent, or the client itself."""
        if self.state is ConnectionState.CLOSING:
            return
        self._listener.failures.note(self._listener.name, self.peer, failure)
        channel = self._leave_session()
        if channel is not None:
            text = f"{failure.problem}: {failure.detail}" if failure.detail else failure.problem
            channel.session(mail.Lost(channel, Reason.UNSPECIFIED_ERROR, text))
        self.close(b"")

    def terminate(self, reason: BaseException | None) -> None:
        self.follow(ConnectionEvent.END)
        self._timer.discard()  # they refer to each other
        if self._limiter is not None:
            self._limiter.discard()
            self._limiter = None
        self._handshake = None
        channel = self._leave_session()
        if channel is not None:
            text = "internal error" if reason is not None else "closed"
            channel.session(mail.Lost(channel, Reason.UNSPECIFIED_ERROR, text))
        self._on_closed(self)
        self._transport.close()
        self._holders = None
        del (
            self._transport
        )  # which refers to a method of this connection: otherwise only the garbage collector could free them
