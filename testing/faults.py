"""Injected faults: on the wire, and in the broker's answers.

fault = broker.faults.drop("PUBACK", client="a", times=1)
...
assert fault.hits == 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import PacketType
from trunkline.testing.arguments import naming
from trunkline.testing.fault import Fault, nobody
from trunkline.testing.fault_layer import FaultLayer
from trunkline.testing.link_faults import LinkFault, links_between
from trunkline.testing.packets import FROM, TO
from trunkline.testing.portal import Portal, Proxy
from trunkline.testing.refusals import RefuseConnect, RefusePublish, RefuseSubscribe, refusing
from trunkline.testing.selection import Cases, Selection, Which, directions
from trunkline.testing.wire_faults import (
    CutAfterBytes,
    Hold,
    Instant,
    PacketFault,
    Reorder,
    invert_a_byte,
    lose,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from trunkline.mqtt.packets import Packet
    from trunkline.mqtt.reasons import Reason
    from trunkline.testing.packet_queue import PacketQueue
    from trunkline.testing.packets import Direction, RawPacket
    from trunkline.testing.running import RunningBroker

__all__ = ["Fault", "Faults", "Which"]

P = TypeVar("P", bound=Portal)

#: Connections whose clients a failure names.
MAX_SEEN: Final = 20


class Faults(Proxy[P]):
    """The faults of one broker. If several select a packet, the one that was made first happens. All methods that make
    a fault raise ValueError for invalid arguments; the message says what is allowed.
    """

    def __init__(self, running: RunningBroker, portal: P) -> None:
        super().__init__(portal)
        self._running = running

    @property
    def portal(self) -> P:
        return self._portal

    def __iter__(self) -> Iterator[Fault[P]]:
        """The faults that are not removed."""
        return iter(list(self._running.faults))

    def clear(self) -> None:
        """Remove all."""
        for fault in self:
            fault.remove()

    def check(self) -> None:
        """
        Raises:
            LookupError: one of them has never happened, and is not `optional`.
        """
        __tracebackhide__ = True
        for fault in self:
            fault.check()

    def seen(self) -> str:
        ids = dict.fromkeys(repr(row.client_id) for row in self._running.connections.rows()[-MAX_SEEN:])
        return f"the last clients: {', '.join(ids) or 'none'}"

    # Packets

    @naming(Which)
    def drop(self, packet: str | PacketType, **which: Unpack[Which]) -> Fault[P]:
        """Packets do not arrive."""
        return self._packets("drop", Selection(packet, **which), lose)

    @naming(Which)
    def delay(self, packet: str | PacketType, seconds: float, **which: Unpack[Which]) -> Fault[P]:
        """Packets and those behind them arrive `seconds` later, so the order stays."""
        _check_positive("seconds", seconds)

        def act(raw: RawPacket, queue: PacketQueue) -> None:
            queue.put(raw.data, seconds)

        return self._packets(f"delay by {seconds:g} s", Selection(packet, **which), act)

    @naming(Which)
    def duplicate(self, packet: str | PacketType, copies: int = 1, **which: Unpack[Which]) -> Fault[P]:
        """Packets arrive once more, or `copies` times more; PUBLISH of QoS 1 and 2 with DUP, as a redelivery."""
        _check_positive("copies", copies)

        def act(raw: RawPacket, queue: PacketQueue) -> None:
            again = raw.data
            if raw.type is PacketType.PUBLISH and again[0] & 0x06:  # [MQTT-3.3.1-1]
                again = bytes((again[0] | 0x08,)) + again[1:]
            queue.put(raw.data)
            queue.put(again * copies)

        return self._packets("duplicate", Selection(packet, **which), act)

    @naming(Which)
    def reorder(self, packet: str | PacketType, behind: int = 1, **which: Unpack[Which]) -> Fault[P]:
        """A packet is held back until the next `behind` selected ones have passed, on the same connection."""
        _check_positive("behind", behind)
        return self._add(Reorder(self, Selection(packet, **which), behind))

    @naming(Which)
    def corrupt(
        self, packet: str | PacketType, change: Callable[[bytes], bytes] = invert_a_byte, **which: Unpack[Which]
    ) -> Fault[P]:
        """Packets arrive with other bytes: those that `change` makes of them, or with one that is inverted, so that
        most break the protocol."""

        def act(raw: RawPacket, queue: PacketQueue) -> None:
            queue.put(bytes(change(raw.data)))

        return self._packets("corrupt", Selection(packet, **which), act)

    def inject(self, packet: Packet | bytes, *, client: str | None = None) -> Fault[P]:
        """A client, or all that are connected, get a packet that the broker has not sent, an object of
        `trunkline.mqtt.packets`, or any bytes.

        Raises:
            LookupError: the client is not connected.
        """
        name = f"{len(packet)} bytes" if isinstance(packet, bytes) else type(packet).__name__.upper()

        def act(layer: FaultLayer) -> bool:
            if layer.version is not None:
                layer.outgoing.put(packet if isinstance(packet, bytes) else encode(packet, layer.version))
                layer.outgoing.release_soon()
            return layer.version is not None

        return self._now(f"inject {name} to {_name(client)}", client, act)

    # Connections

    def cut(
        self,
        *,
        client: str | None = None,
        before: str | PacketType | None = None,
        after: str | PacketType | None = None,
        after_bytes: int | None = None,
        direction: Direction | None = None,
        topic: str | None = None,
        where: Callable[[Any], object] | None = None,
        times: int = 1,
        skip: int = 0,
    ) -> Fault[P]:
        """Reset a connection: before or after a packet, after `after_bytes` more bytes, or, without any of these, now.
        The first `skip` packets are let through.

        Raises:
            LookupError: it is to happen now, and the client is not connected.
        """
        if sum(point is not None for point in (before, after, after_bytes)) > 1:
            raise ValueError("a connection is cut before= a packet, after= a packet or after_bytes=: give one of them")
        packet = before if before is not None else after
        if packet is not None:
            selection = Selection(packet, client, direction, topic, where, times, skip)

            def act(raw: RawPacket, queue: PacketQueue) -> None:
                if before is not None:
                    lose(raw, queue)
                else:
                    queue.put(raw.data)
                queue.cut()

            return self._packets("cut before" if before is not None else "cut after", selection, act)
        if topic is not None or where is not None or skip:
            raise ValueError("topic=, where= and skip= choose the packet to cut before= or after=: name one")
        if after_bytes is None:
            if direction is not None:
                raise ValueError("direction= goes with before=, after= or after_bytes=: a connection is cut as a whole")
            return self._now(f"cut {_name(client)}", client, FaultLayer.reset_soon)
        _check_positive("after_bytes", after_bytes)
        text = f"cut {_name(client)} after {after_bytes} bytes"
        return self._add(CutAfterBytes(self, text, client, directions(direction), after_bytes, times))

    def stop_reading(self, *, client: str | None = None, direction: Direction = FROM) -> Fault[P]:
        """The broker stops reading `from` the client; or, `to` it, the client stops reading. Removing the fault lets
        them go on."""
        text = f"stop reading {direction} {_name(client)}"
        return self._add(Hold(self, text, client, stops=directions(direction)))

    def drip(
        self, *, client: str | None = None, seconds: float = 0.001, direction: Direction | None = None
    ) -> Fault[P]:
        """Bytes come one at a time, `seconds` apart."""
        if seconds < 0:
            raise ValueError(f"seconds={seconds:g}: must be 0 or more")
        drips = dict.fromkeys(directions(direction), seconds)
        return self._add(Hold(self, f"drip {_name(client)}", client, drips=drips))

    def silence(self, *, client: str | None = None) -> Fault[P]:
        """A half-open connection: neither side receives anything from the other, not even its close. When the fault is
        removed, both receive everything that they have missed."""
        return self._add(Hold(self, f"silence {_name(client)}", client, stops=(FROM, TO), hides_end=True))

    # Links

    def cut_link(self, one: int, other: int) -> Fault[P]:
        """Two shards of a broker with several are not joined, until the fault is removed."""
        links = links_between(self._running.shards, one, other)
        text = f"cut the link between {one} and {other}"
        return self._add(
            LinkFault(self, text, links, lambda links: links.part(one, other), lambda links: links.mend(one, other))
        )

    def stall_link(self, one: int, other: int) -> Fault[P]:
        """Nothing arrives between two shards, until the fault is removed."""
        links = links_between(self._running.shards, one, other)
        text = f"stall the link between {one} and {other}"
        return self._add(
            LinkFault(self, text, links, lambda links: links.stop(one, other), lambda links: links.go_on(one, other))
        )

    def delay_link(self, one: int, other: int, seconds: float) -> Fault[P]:
        """What one shard sends to the other arrives `seconds` later, in order."""
        _check_positive("seconds", seconds)
        links = links_between(self._running.shards, one, other)
        text = f"delay the link between {one} and {other} by {seconds:g} s"
        return self._add(
            LinkFault(
                self,
                text,
                links,
                lambda links: links.slow(one, other, seconds),
                lambda links: links.slow(one, other, 0.0),
            )
        )

    # Requests of clients

    @naming(Cases)
    def refuse_connect(self, reason: Reason | int | str, **cases: Unpack[Cases]) -> Fault[P]:
        """Clients are refused. 3.x clients get the return code that stands for the reason."""
        return self._add(RefuseConnect(self, "refuse connects", refusing(reason, PacketType.CONNACK), **cases))

    @naming(Cases)
    def refuse_subscribe(
        self, reason: Reason | int | str, *, filter: str | None = None, **cases: Unpack[Cases]
    ) -> Fault[P]:
        """Subscriptions are refused: to `filter`, and to filters that it matches if it has wildcards; without `filter`,
        all."""
        why = refusing(reason, PacketType.SUBACK)
        return self._add(RefuseSubscribe(self, "refuse subscribes", why, filter, **cases))

    @naming(Cases)
    def refuse_publish(
        self, reason: Reason | int | str, *, topic: str | None = None, **cases: Unpack[Cases]
    ) -> Fault[P]:
        """Messages are dropped, and a 5.0 publisher gets the reason in PUBACK or PUBREC. `topic` may have wildcards."""
        return self._add(RefusePublish(self, "refuse publishes", refusing(reason, PacketType.PUBACK), topic, **cases))

    def _now(self, text: str, client: str | None, act: Callable[[FaultLayer], object]) -> Fault[P]:
        fault = self._add(Instant(self, text, client, act))
        if not fault.hits:
            fault.remove()
            raise nobody(client, self._portal.call(lambda: [layer.client_id for layer in self._running.network]))
        return fault

    def _packets(self, text: str, selection: Selection, act: Callable[[RawPacket, PacketQueue], None]) -> Fault[P]:
        return self._add(PacketFault(self, text, selection, act))

    def _add(self, fault: Fault[P]) -> Fault[P]:
        self._portal.call(self._begin, fault)
        return fault

    def _begin(self, fault: Fault[P]) -> None:
        fault.begin(self._running.network, self._running.hooks)
        self._running.faults.append(fault)

    def remove(self, fault: Fault[Any]) -> None:
        """As `fault.remove()`."""
        self._portal.call(self._end, fault)

    def _end(self, fault: Fault[Any]) -> None:
        if fault in self._running.faults:
            self._running.faults.remove(fault)
            fault.end(self._running.network, self._running.hooks)


def _check_positive(name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{name}={value:g}: must be more than 0")


def _name(client: str | None) -> str:
    return "all" if client is None else repr(client)
