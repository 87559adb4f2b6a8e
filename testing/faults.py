"""Things that go wrong on purpose: on the wire, and in the broker's answers.

fault = broker.faults.drop("PUBACK", client="a", times=1)
...
assert fault.hits == 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.mqtt.packets import PacketType
from trunkline.testing.fault import Fault
from trunkline.testing.packets import FROM, TO
from trunkline.testing.refusals import RefuseConnect, RefusePublish, RefuseSubscribe, refusing
from trunkline.testing.rules import (
    Corrupt,
    Cut,
    CutAfterBytes,
    CutNow,
    Delay,
    Duplicate,
    Hold,
    Inject,
    PacketFault,
    Reorder,
)
from trunkline.testing.selecting import Selection, Which, directions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.packets import Packet
    from trunkline.mqtt.reasons import Reason
    from trunkline.testing.links import Links
    from trunkline.testing.packets import Direction
    from trunkline.testing.reach import Reach

__all__ = ["Fault", "Faults", "Which"]

F = TypeVar("F", bound=Fault)
P = TypeVar("P", bound=PacketFault)


class Faults:
    """The faults of one broker. Of several that a packet is chosen by, the one that was made first happens.

    All methods that make a fault raise ValueError when what they are given cannot be; the message names what can.
    """

    def __init__(self, links: Links, hooks: Hooks, reach: Reach) -> None:
        self._links = links
        self._hooks = hooks
        self.reach = reach

    def __iter__(self) -> Iterator[Fault]:
        """Those that are not removed."""
        return iter(list(self._links.faults))

    def clear(self) -> None:
        """Remove all."""
        for fault in self:
            fault.remove()

    # Packets

    def drop(self, packet: str | PacketType, **which: Unpack[Which]) -> Fault:
        """Packets do not arrive."""
        return self._add(self._packets(PacketFault, "drop", packet, which))

    def delay(self, packet: str | PacketType, seconds: float, **which: Unpack[Which]) -> Fault:
        """Packets arrive `seconds` later, and so does what comes behind them: the order stays."""
        fault = self._packets(Delay, f"delay by {seconds:g} s", packet, which)
        fault.seconds = _positive("seconds", seconds)
        return self._add(fault)

    def duplicate(self, packet: str | PacketType, copies: int = 1, **which: Unpack[Which]) -> Fault:
        """Packets arrive once more, or `copies` times more; PUBLISH of QoS 1 and 2 with DUP, as a redelivery."""
        fault = self._packets(Duplicate, "duplicate", packet, which)
        fault.copies = int(_positive("copies", copies))
        return self._add(fault)

    def reorder(self, packet: str | PacketType, behind: int = 1, **which: Unpack[Which]) -> Fault:
        """A packet is held back until the next `behind` that are chosen have passed, on the same connection."""
        fault = self._packets(Reorder, "reorder", packet, which)
        fault.behind = int(_positive("behind", behind))
        return self._add(fault)

    def corrupt(
        self, packet: str | PacketType, change: Callable[[bytes], bytes] | None = None, **which: Unpack[Which]
    ) -> Fault:
        """Packets arrive with other bytes: those that `change` makes of them, or with one that is inverted, so that most
        break the protocol."""
        fault = self._packets(Corrupt, "corrupt", packet, which)
        if change is not None:
            fault.change = change  # type: ignore[assignment, method-assign]
        return self._add(fault)

    def inject(self, packet: Packet | bytes, *, client: str | None = None) -> Fault:
        """A client, or all that are connected, get a packet that the broker has not sent, as `trunkline.mqtt.packets` has
        it, or any bytes.

        Raises:
            LookupError: the client is not connected.
        """
        name = f"{len(packet)} bytes" if isinstance(packet, bytes) else type(packet).__name__.upper()
        who = "all" if client is None else repr(client)
        return self._add(Inject(f"inject {name} to {who}", self, client, packet))

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
    ) -> Fault:
        """Reset a connection without a word: before or after a packet, after so many more bytes, or, without any of these,
        now. `skip` packets are let pass first."""
        if sum(point is not None for point in (before, after, after_bytes)) > 1:
            raise ValueError("a connection is cut before= a packet, after= a packet or after_bytes=: give one of them")
        who = "all" if client is None else repr(client)
        packet = before if before is not None else after
        if packet is not None:
            selection = Selection(packet, client, direction, topic, where)
            fault = Cut(f"cut {'before' if before is not None else 'after'}", self, selection, times, skip)
            fault.before = before is not None
            return self._add(fault)
        if topic is not None or where is not None or skip:
            raise ValueError("topic=, where= and skip= choose the packet to cut before= or after=: name one")
        if after_bytes is None:
            if direction is not None:
                raise ValueError("direction= goes with before=, after= or after_bytes=: a connection is cut as a whole")
            return self._add(CutNow(f"cut {who}", self, client))
        size = int(_positive("after_bytes", after_bytes))
        text = f"cut {who} after {size} bytes"
        return self._add(CutAfterBytes(text, self, client, directions(direction), size, times))

    def stop_reading(self, *, client: str | None = None, direction: Direction = FROM) -> Fault:
        """The broker reads no more of what comes `from` the client; or, `to` it, the client takes no more. Removing the
        fault lets them go on."""
        fault = Hold(f"stop reading {direction} {'all' if client is None else repr(client)}", self, client)
        fault.stops = frozenset(directions(direction))
        return self._add(fault)

    def drip(self, *, client: str | None = None, seconds: float = 0.001, direction: Direction | None = None) -> Fault:
        """Bytes come one at a time, `seconds` apart."""
        if seconds < 0:
            raise ValueError(f"seconds={seconds:g}: no byte comes before the last one")
        fault = Hold(f"drip {'all' if client is None else repr(client)}", self, client)
        fault.drips = dict.fromkeys(directions(direction), seconds)
        return self._add(fault)

    def silence(self, *, client: str | None = None) -> Fault:
        """A half-open connection: neither side hears the other any more, nor that it has closed. When the fault is removed,
        they hear all that they have missed."""
        fault = Hold(f"silence {'all' if client is None else repr(client)}", self, client)
        fault.stops = frozenset((FROM, TO))
        fault.hides_end = True
        return self._add(fault)

    # What clients ask for

    def refuse_connect(
        self, reason: Reason | int | str, *, client: str | None = None, times: int | None = None, after: int = 0
    ) -> Fault:
        """Clients are not let in. 3.x clients get the return code that stands for the reason."""
        why = refusing(reason, PacketType.CONNACK)
        return self._add(RefuseConnect(f"refuse connects: {why.name}", self, why, client, None, times, after))

    def refuse_subscribe(
        self,
        reason: Reason | int | str,
        *,
        filter: str | None = None,
        client: str | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> Fault:
        """Subscriptions are not granted: to `filter`, and to what it takes if it has wildcards; without one, to
        anything."""
        why = refusing(reason, PacketType.SUBACK)
        return self._add(RefuseSubscribe(f"refuse subscribes: {why.name}", self, why, client, filter, times, after))

    def refuse_publish(
        self,
        reason: Reason | int | str,
        *,
        topic: str | None = None,
        client: str | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> Fault:
        """Messages go nowhere, and their publisher is told why: by a 5.0 PUBACK or PUBREC. `topic` may have wildcards."""
        why = refusing(reason, PacketType.PUBACK)
        return self._add(RefusePublish(f"refuse publishes: {why.name}", self, why, client, topic, times, after))

    def _packets(self, kind: type[P], text: str, packet: str | PacketType, which: Which) -> P:
        known = {"client", "direction", "topic", "where"}
        selection = Selection(packet, **{name: value for name, value in which.items() if name in known})  # type: ignore[arg-type]
        rest = {name: value for name, value in which.items() if name not in known}
        return kind(text, self, selection, **rest)  # type: ignore[arg-type]

    def _add(self, fault: F) -> F:
        self.reach.call(self._begin, fault)
        return fault

    def _begin(self, fault: Fault) -> None:
        fault.begin(self._links, self._hooks)
        self._links.faults.append(fault)

    def remove(self, fault: Fault) -> None:
        """As `fault.remove()`."""
        self.reach.call(self._end, fault)

    def _end(self, fault: Fault) -> None:
        if fault in self._links.faults:
            self._links.faults.remove(fault)
            fault.end(self._links, self._hooks)


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise ValueError(f"{name}={value:g}: must be more than 0")
    return value
