"""The incoming half of a client's session: messages on their way to their receivers, and what they are answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trunkline.mqtt.packets import PacketType, Pubcomp
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.aliases import ReceivedAliases
from trunkline.mqtt.session.receiving import Receiving
from trunkline.mqtt.session.states import ReceiptEffect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.client.link import Link
    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements
    from trunkline.mqtt.publication import ReceivedPublication
    from trunkline.mqtt.session.receiving import OwedRun


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
    __slots__ = ("_aliases", "_may_flush", "_receiving", "on_acknowledged")

    def __init__(self) -> None:
        self._receiving = Receiving()
        self._aliases = ReceivedAliases()
        #: Whether a message was acknowledged since the last `flush`.
        self._may_flush = False
        #: Called when there are acknowledgements to send, if there were none.
        self.on_acknowledged: Callable[[], object] | None = None

    def attach(self, receive_maximum: int, max_aliases: int) -> None:
        """A connection is open."""
        self._aliases = ReceivedAliases(max_aliases)
        self._receiving.attach(receive_maximum)

    def detach(self) -> None:
        self._may_flush = False
        self._receiving.detach()

    def forget(self) -> None:
        """The session is over."""
        self.detach()
        self._receiving = Receiving()

    def publish(self, publication: ReceivedPublication) -> Iterator[Handover]:
        """What is to be handed over.

        Raises:
            ProtocolError: the server broke the protocol.
        """
        if publication.properties:
            self._aliases.read(publication)
        for found, run in self._receiving.publish(publication):
            yield Handover(found, run, self)

    def pubrel(self, packet: Acknowledgement | Acknowledgements, link: Link) -> None:
        for effect, packet_ids, _ in self._receiving.released(packet):
            if effect is ReceiptEffect.PUBCOMP:
                link.acknowledge(PacketType.PUBCOMP, packet_ids)
            else:
                for packet_id in packet_ids:
                    link.send(Pubcomp(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def acknowledge(self, run: OwedRun, number: int) -> None:
        """A receiver is done with a message."""
        if self._receiving.accept(run, number) and not self._may_flush:
            self._may_flush = True
            if self.on_acknowledged is not None:
                self.on_acknowledged()

    def flush(self, link: Link) -> None:
        """Send all acknowledgements whose turn has come."""
        self._may_flush = False
        for kind, packet_ids in self._receiving.leaving():
            link.acknowledge(kind, packet_ids)
