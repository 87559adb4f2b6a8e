"""The incoming half of a client's session: messages of the server, and their acknowledgements in order.

A QoS 2 message is handed over when it comes, and its packet id is known from then until its PUBREL: on every connection
of the session, so it is handed over once.  # [MQTT-4.3.3-10]

A QoS 1 message that is not acknowledged when its connection ends comes again, and is handed over again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.client.acknowledging import OwedRun
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import PacketType, Pubcomp, Pubrel
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.aliases import ReceivedAliases
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.client.link import Link
    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import ReceivedPublication

_KINDS: Final = {1: PacketType.PUBACK, 2: PacketType.PUBREC}


class Handover:
    """A publication on its way to its receivers."""

    __slots__ = ("_incoming", "_run", "publication")

    def __init__(self, publication: ReceivedPublication, run: OwedRun | None, incoming: IncomingHalf) -> None:
        self.publication = publication
        self._run = run
        self._incoming = incoming

    def expect(self, number: int, receivers: int) -> None:
        """So many receivers get message `number`. Without any, it is acknowledged."""
        if self._run is not None and receivers != 1:
            self._run.expect(number, max(receivers, 1))
            if not receivers:
                self._incoming.acknowledge(self._run, number)

    @property
    def acknowledge(self) -> Callable[[int], object] | None:
        """What a receiver calls with the number of the message, once; None at QoS 0."""
        return None if self._run is None else partial(self._incoming.acknowledge, self._run)


class IncomingHalf:
    __slots__ = (
        "_again",
        "_aliases",
        "_awaiting_rel",
        "_ledger",
        "_link",
        "_max_open",
        "_may_flush",
        "on_acknowledged",
    )

    def __init__(self) -> None:
        self._awaiting_rel = AwaitingRel()
        self._ledger = Ledger(self._awaiting_rel)
        self._aliases = ReceivedAliases()
        #: QoS 2 messages that no receiver has acknowledged: where this connection owes their PUBREC, if it does.
        self._again: dict[int, tuple[OwedRun, int] | None] = {}
        self._max_open = 0
        self._link: Link | None = None
        #: Whether a message was acknowledged since the last `flush`.
        self._may_flush = False
        #: Called when there are acknowledgements to send, if there were none.
        self.on_acknowledged: Callable[[], object] | None = None

    # Connections

    def attach(self, link: Link, receive_maximum: int, max_aliases: int) -> None:
        """A connection is open."""
        self._link = link
        self._aliases = ReceivedAliases(max_aliases)
        # what an earlier connection has left open does not count on this one
        self._max_open = receive_maximum + len(self._awaiting_rel)

    def detach(self) -> None:
        """What is not acknowledged will not be: the server sends it again."""
        self._link = None
        self._may_flush = False
        self._ledger = Ledger(self._awaiting_rel)
        self._again = dict.fromkeys(self._again)

    def forget(self) -> None:
        """The session is over."""
        self._awaiting_rel = AwaitingRel()
        self._again.clear()
        self.detach()

    # Messages

    def publish(self, publication: ReceivedPublication) -> Iterator[Handover]:
        """What is to be handed over.

        Raises:
            ProtocolError: the server broke the protocol.
        """
        if publication.properties:
            self._read_alias(publication)
        if not publication.qos:
            yield Handover(publication, None, self)
            return
        packet_ids = publication.packet_ids
        if self._ledger.exceeds(self._max_open, packet_ids):
            raise ProtocolError("more messages than the receive maximum allows", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if publication.qos == 1:
            run = OwedRun(PacketType.PUBACK, packet_ids)
            self._ledger.place(run)
            yield Handover(publication, run, self)
        elif self._awaiting_rel.are_new(packet_ids):
            self._awaiting_rel.receive(packet_ids, None, 0)
            run = OwedRun(PacketType.PUBREC, packet_ids)
            self._ledger.place(run)
            self._again.update((packet_id, (run, number)) for number, packet_id in enumerate(packet_ids))
            yield Handover(publication, run, self)
        elif publication.count > 1:
            for message in publication.messages:
                yield from self.publish(message)
        else:
            self._repeated(publication.packet_id)

    def _repeated(self, packet_id: int) -> None:
        """It was handed over before. PUBREC is owed anew, and leaves when the message is acknowledged; once, if a 3.x
        server repeats it meanwhile."""
        if self._again.get(packet_id) is not None:
            return
        run = OwedRun(PacketType.PUBREC, (packet_id,))
        self._ledger.place(run)
        if packet_id in self._again:
            self._again[packet_id] = run, 0
        else:
            run.acknowledge(0)
            self._changed()

    def _read_alias(self, publication: ReceivedPublication) -> None:
        properties = publication.properties
        alias = properties.get("topic_alias")
        if alias is not None:
            publication.topic = self._aliases.resolve(alias, publication.topic)
            rest: Properties = {**properties}
            del rest["topic_alias"]
            publication.properties = rest or NO_PROPERTIES

    def pubrel(self, packet: Acknowledgement | Acknowledgements) -> None:
        """PUBCOMP is sent at once: it need not wait for the receivers of other messages.  # [MQTT-4.3.3-11]"""
        packet_ids, link = packet.packet_ids, self._link
        if link is None:
            return
        if self._awaiting_rel.are_open(packet_ids):
            self._awaiting_rel.release(packet_ids)
            link.acknowledge(PacketType.PUBCOMP, packet_ids)
        elif packet.count > 1:
            for packet_id in packet_ids:
                self.pubrel(Pubrel(packet_id))
        else:
            link.send(Pubcomp(packet_ids[0], Reason.PACKET_IDENTIFIER_NOT_FOUND))

    # Acknowledgements

    def acknowledge(self, run: OwedRun, number: int) -> None:
        """A receiver is done with a message."""
        if not run.acknowledge(number):
            return
        if run.kind is PacketType.PUBREC:
            owed = self._again.pop(run.packet_id(number), None)
            if owed is not None and owed[0] is not run:  # it was repeated on a later connection
                owed[0].acknowledge(owed[1])
        if not self._may_flush:
            self._changed()

    def _changed(self) -> None:
        self._may_flush = True
        if self.on_acknowledged is not None:
            self.on_acknowledged()

    def flush(self) -> None:
        """Send all acknowledgements whose turn has come."""
        self._may_flush = False
        ledger, link = self._ledger, self._link
        while link is not None and ledger.entries and isinstance(run := ledger.entries[0], OwedRun):
            packet_ids, is_all = run.take()
            if packet_ids:
                link.acknowledge(run.kind, packet_ids)
            if not is_all:
                if packet_ids:
                    ledger.advance(len(packet_ids))
                return
            ledger.settle(run, b"")
