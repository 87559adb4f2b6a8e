"""The half of a session that receives, of a side that hands messages over and is told when each of them is accepted.

A QoS 2 message is handed over when it comes, and its packet id is known from then until its PUBREL: on every connection
of the session, so it is handed over once.  # [MQTT-4.3.3-10]

A QoS 1 message that is not accepted when its connection ends comes again, and is handed over again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.session.aliases import ReceivedAliases
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.ledger import Ledger, Owed
from trunkline.mqtt.session.states import RECEIVING, ReceiptEffect, ReceiptEvent, ReceiptState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements
    from trunkline.mqtt.publication import ReceivedPublication
    from trunkline.mqtt.session.awaiting_rel import Released

#: Receivers of one message that may each have to accept it.
MAX_RECEIVERS: Final = 255


class OwedRun(Owed):
    """The acknowledgements of one publication: a place in the ledger that leaves message by message, from its front."""

    __slots__ = ("_packet_ids", "_sent", "_waiting", "kind")

    def __init__(self, kind: PacketType, packet_ids: Sequence[int]) -> None:
        # `AwaitingRel` counts the messages of QoS 2
        super().__init__(len(packet_ids), len(packet_ids) if kind is PacketType.PUBACK else 0)
        #: PUBACK or PUBREC.
        self.kind = kind
        self._packet_ids = packet_ids
        #: How many acknowledgements each message still waits for: one of each receiver.
        self._waiting = bytearray(b"\1") * len(packet_ids)
        self._sent = 0

    def expect(self, number: int, receivers: int) -> None:
        """Message `number` waits for so many receivers."""
        self._waiting[number] = min(receivers, MAX_RECEIVERS)

    def acknowledge(self, number: int) -> bool:
        """One receiver is done with message `number`. Returns True if it was the last."""
        left = self._waiting[number]
        if left:
            self._waiting[number] = left - 1
        return left == 1

    def withdraw(self, number: int) -> None:
        """Nothing is owed for message `number` any more."""
        self._waiting[number] = 0
        self._packet_ids = [*self._packet_ids[:number], 0, *self._packet_ids[number + 1 :]]

    def packet_id(self, number: int) -> int:
        return self._packet_ids[number]

    def take(self) -> tuple[Sequence[int], bool]:
        """The packet ids that may be acknowledged now, those at the front, with 0 for what was withdrawn. And whether
        these are all that are left."""
        begin = self._sent
        rest = self._waiting[begin:]
        self._sent = begin + len(rest) - len(rest.lstrip(b"\0"))
        return self._packet_ids[begin : self._sent], self._sent == len(self._waiting)


class Handover:
    """A publication on its way to its receivers."""

    __slots__ = ("_receiving", "_run", "publication")

    def __init__(self, publication: ReceivedPublication, run: OwedRun | None, receiving: Receiving) -> None:
        self.publication = publication
        self._run = run
        self._receiving = receiving

    def expect(self, number: int, receivers: int) -> None:
        """So many receivers get message `number`. Without any, it is accepted."""
        if self._run is not None and receivers != 1:
            self._run.expect(number, max(receivers, 1))
            if not receivers:
                self._receiving.accept(self._run, number)

    @property
    def accept(self) -> Callable[[int], object] | None:
        """What a receiver calls with the number of the message, once; None at QoS 0."""
        return None if self._run is None else partial(self._receiving.accept, self._run)


#: A QoS 2 message that was handed over: with what it came, and where this connection owes its PUBREC, if it does.
Unaccepted: TypeAlias = tuple[OwedRun, tuple[OwedRun, int] | None]


class Receiving:
    __slots__ = ("_aliases", "_awaiting_rel", "_may_leave", "_unaccepted", "ledger", "on_accepted")

    def __init__(self) -> None:
        #: Called when a message is accepted, if none was since the last `leaving`.
        self.on_accepted: Callable[[], object] | None = None
        self.forget()

    def forget(self) -> None:
        """The session is over."""
        self._aliases = ReceivedAliases()
        self._awaiting_rel = AwaitingRel()
        self.ledger = Ledger(self._awaiting_rel)
        #: By packet id.
        self._unaccepted: dict[int, Unaccepted] = {}
        self._may_leave = False

    def attach(self, receive_maximum: int, max_aliases: int = 0) -> None:
        """A connection is open."""
        self._aliases = ReceivedAliases(max_aliases)
        self.ledger.open(receive_maximum)

    def detach(self) -> None:
        """It is over. What is not accepted yet will not be acknowledged by it: the other side sends it again."""
        self.ledger.clear()
        self._may_leave = False
        self._unaccepted = {packet_id: (run, None) for packet_id, (run, _) in self._unaccepted.items()}

    def state(self, packet_id: int) -> ReceiptState:
        """Of the QoS 2 message with this packet id."""
        if packet_id not in self._awaiting_rel:
            return ReceiptState.NEW
        if packet_id not in self._unaccepted:
            return ReceiptState.ACCEPTED
        return ReceiptState.LEFT if self._unaccepted[packet_id][1] is None else ReceiptState.OWED

    def publish(self, publication: ReceivedPublication) -> Iterator[Handover]:
        """What is to be handed over.

        Raises:
            ProtocolError: the other side broke the protocol.
        """
        if publication.properties:
            self._aliases.read(publication)
        if not publication.qos:
            yield Handover(publication, None, self)
            return
        packet_ids = publication.packet_ids
        self.ledger.check(packet_ids)
        if publication.qos == 1:
            yield Handover(publication, self._owe(PacketType.PUBACK, packet_ids), self)
        elif self._awaiting_rel.are_new(packet_ids):
            self._awaiting_rel.receive(packet_ids, None, 0)
            run = self._owe(PacketType.PUBREC, packet_ids)
            self._unaccepted.update((packet_id, (run, (run, number))) for number, packet_id in enumerate(packet_ids))
            yield Handover(publication, run, self)
        elif publication.count > 1:
            for message in publication.messages:
                yield from self.publish(message)
        else:
            self._repeated(publication.packet_id)

    def _owe(self, kind: PacketType, packet_ids: Sequence[int]) -> OwedRun:
        run = OwedRun(kind, packet_ids)
        self.ledger.place(run)
        return run

    def _repeated(self, packet_id: int) -> None:
        """It was handed over before. PUBREC is owed once more, and leaves when the message is accepted."""
        _, effect = RECEIVING[self.state(packet_id)][ReceiptEvent.PUBLISH]
        if effect is ReceiptEffect.PUBREC:
            self._owe(PacketType.PUBREC, (packet_id,)).acknowledge(0)
        elif effect is ReceiptEffect.OWE:
            run, _ = self._unaccepted[packet_id]
            self._unaccepted[packet_id] = run, (self._owe(PacketType.PUBREC, (packet_id,)), 0)

    def accept(self, run: OwedRun, number: int) -> None:
        """One receiver is done with message `number` of these."""
        if not run.acknowledge(number):
            return
        if run.kind is PacketType.PUBREC:
            packet_id = run.packet_id(number)
            origin, place = self._unaccepted.get(packet_id, (None, None))
            if origin is run:  # no later message with its packet id
                del self._unaccepted[packet_id]
                if place is not None and place[0] is not run:  # it was repeated on a later connection
                    place[0].acknowledge(place[1])
        if not self._may_leave:
            self._may_leave = True
            if self.on_accepted is not None:
                self.on_accepted()

    def released(self, packet: Acknowledgement | Acknowledgements) -> Iterable[Released]:
        """PUBREL came: PUBCOMP follows at once, and waits for the receivers of no other message."""
        for packet_id in self._unaccepted.keys() & packet.packet_ids:
            _, place = self._unaccepted.pop(packet_id)
            if place is not None:  # a PUBREC that leaves later would be that of a later message
                place[0].withdraw(place[1])
        return self._awaiting_rel.released(packet)

    def leaving(self) -> list[tuple[PacketType, Sequence[int]]]:
        """PUBACK and PUBREC whose turn has come, in order."""
        self._may_leave = False
        entries = self.ledger.entries
        found: list[tuple[PacketType, Sequence[int]]] = []
        while entries and isinstance(run := entries[0], OwedRun):
            packet_ids, is_all = run.take()
            if any(packet_ids):
                found.append((run.kind, packet_ids if 0 not in packet_ids else [*filter(None, packet_ids)]))
            if is_all:
                self.ledger.settle(run, b"")
                continue
            if packet_ids:
                self.ledger.advance(len(packet_ids))
            break
        return found
