"""What the broker answers one client: acknowledgements and other packets of its own, in the order of the client's
packets.

An answer may have to wait for an access decision, or for a commit. The ledger keeps its place, so that later ones wait,
too. A client that is owed too many, or for messages that are too large together, is not read from meanwhile; nor is one
that is owed any while too much waits for the store, whoever sent it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason, LimitKind
from trunkline.broker.session import mail
from trunkline.mqtt.encoder import encode_within
from trunkline.mqtt.explanations import reason_string
from trunkline.mqtt.frames import PACKET_ID
from trunkline.mqtt.packets import ACKNOWLEDGEMENTS, TYPE_OF, Acknowledgement, Packet, PacketType, Puback, Pubrec
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.ledger import Ledger, all_of
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trunkline.broker.late_refusals import LateRefusals
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.awaiting_rel import AwaitingRel
    from trunkline.mqtt.session.ledger import Owed, Wait

MAX_UNCOMMITTED: Final = "half of store.max_uncommitted_bytes waits for the store"

#: Owed answers beyond which nothing more is read from the client: `mqtt.receive_maximum`, or this if it is less. While
#: the disk is full, a client that goes on publishing would fill the memory.
MAX_OWED: Final = 4096

_PACKET_ID: Final = PACKET_ID.__getitem__
#: How an acknowledgement of success begins, in all versions.
_HEADS: Final = {TYPE_OF[kind]: bytes((first, 2)) for first, kind in ACKNOWLEDGEMENTS.items()}


class Answering:
    __slots__ = (
        "_channel",
        "_context",
        "_crowded",
        "_in_memory",
        "_max_owed",
        "_max_unacknowledged",
        "_pieces",
        "_sent",
        "_unacknowledged",
        "ledger",
    )

    def __init__(self, context: SessionContext, pieces: list[bytes]) -> None:
        """`pieces` are the wire bytes of this turn."""
        self._context = context
        self._pieces = pieces
        #: Counts packets by type.
        self._sent = context.services.metrics.sent
        #: The client's connection.
        self._channel: Channel | None = None
        #: Is the client not read from, because it is owed too many answers?
        self._crowded = False
        self._max_owed = MAX_OWED
        #: Do its answers wait for no store?
        self._in_memory = False
        #: Bytes of its messages that wait for the store, those of earlier connections included; 0 is no limit.
        self._unacknowledged = 0.0
        self._max_unacknowledged = 0

    def bind(self, awaiting_rel: AwaitingRel) -> None:
        """Take this part of the session, which may be a new one."""
        self.ledger = Ledger(awaiting_rel)

    def attach(self, channel: Channel) -> None:
        self._channel = channel
        self.ledger.open(channel.receive_maximum_in)
        self._max_owed = min(channel.config.mqtt.receive_maximum, MAX_OWED)
        self._in_memory = not channel.client.durable
        self._max_unacknowledged = 0 if self._in_memory else channel.config.mqtt.max_unacknowledged_bytes
        self._review()

    def detach(self) -> None:
        """The client gets none of the answers that it is owed."""
        self._channel = None
        self._crowded = False
        self.ledger.clear()

    def write(self, packet: Packet, owed: Owed | None = None, wait: Wait | None = None, weight: float = 0.0) -> bool:
        """Send a packet after the output of this turn, and after all answers owed before it. `owed` is its place, if it
        had to wait; `wait` calls back when it may leave, and `weight` is what the message takes until then, also where
        the answers wait for no store. Returns False if the client accepts no packet so large."""
        channel = self._channel
        if channel is None:
            return True
        if wait is not None and self._in_memory:
            self.hold(wait, weight)
            wait = None
        wire = encode_within(packet, channel.version, channel.max_packet_size)
        if wire:
            kind = TYPE_OF[type(packet)]
            if owed is None and isinstance(packet, Acknowledgement) and (self.ledger.entries or wait is not None):
                owed = self.ledger.owe(kind, packet.packet_ids)
            if owed is None:
                self._pieces.append(wire)
            elif wait is None:
                self._settle(owed, wire)
            else:
                self.hold(wait, weight, owed, wire)
            self._sent[kind] += 1
        return bool(wire)

    def acknowledge(
        self, kind: PacketType, packet_ids: Sequence[int], wait: Wait | None = None, weight: float = 0.0
    ) -> None:
        """As `write`, acknowledgements of success in a row."""
        head = _HEADS[kind]
        count = len(packet_ids)
        wire = head + (PACKET_ID[packet_ids[0]] if count == 1 else head.join(map(_PACKET_ID, packet_ids)))
        if wait is not None and self._in_memory:
            self.hold(wait, weight)
            wait = None
        if wait is not None:
            self.hold(wait, weight, self.ledger.owe(kind, packet_ids), wire)
        elif self.ledger.entries:
            self._settle(self.ledger.owe(kind, packet_ids), wire)
        else:
            self._pieces.append(wire)
        self._sent[kind] += count

    def acknowledge_late(
        self, late: LateRefusals, packet_ids: Sequence[int], publication: Publication, wait: Wait | None
    ) -> None:
        """PUBACK for each message of a publication, when it is known whether it was refused."""
        answer = self._late_answer(Puback, packet_ids, publication, map(late.take, publication.messages))
        if wait is None:
            answer()
            return
        self.hold(wait, publication.weight)
        wait(lambda: self._context.soon(answer))

    def asks(
        self, late: LateRefusals, packet_ids: Sequence[int], publication: Publication | None, stored: Wait | None
    ) -> bool:
        """PUBREC for each message of a publication, when it is known whether it would be refused, and `stored` has
        called back. Returns False if nobody is asked about it, or the client could not be told."""
        channel, refusals = self._channel, list[str]()
        if channel is None or channel.version != Version.V5 or publication is None:
            return False
        known = late.asked(publication, refusals)
        if known is None:
            return False
        answer = self._late_answer(Pubrec, packet_ids, publication, refusals)
        waits = [known]
        if stored is not None:
            self.hold(stored, publication.weight)
            if not self._in_memory:
                waits.append(stored)
        all_of(waits)(lambda: self._context.soon(answer))
        return True

    def _late_answer(
        self,
        kind: type[Puback | Pubrec],
        packet_ids: Sequence[int],
        publication: Publication,
        refusals: Iterable[str],
    ) -> Callable[[], None]:
        """Owe one to each message. Returns what gives it, when the refusals are known."""
        owed = [self.ledger.owe(TYPE_OF[kind], (packet_id,)) for packet_id in packet_ids]
        channel, messages = self._channel, publication.messages

        def answer() -> None:
            for packet_id, message, place, refusal in zip(packet_ids, messages, owed, refusals, strict=True):
                if channel is None or channel is not self._channel:
                    continue  # nobody is owed it any more
                ended = self._end_exchange(packet_id, message) if refusal and kind is Pubrec else None
                reason = Reason.QUOTA_EXCEEDED if refusal else Reason.SUCCESS
                properties = reason_string(refusal) if channel.problem_information else NO_PROPERTIES
                self.write(kind(packet_id, reason, properties), place, ended)

        return answer

    def _end_exchange(self, packet_id: int, message: Message) -> Wait | None:
        """A message of QoS 2 is refused after all. The client may use its packet id again when it knows that: by then
        this must be stored."""
        session, services = self._context.session, self._context.services
        if session.awaiting_rel.withdraw(packet_id, message):
            services.dropped(session.client, message, DropReason.STREAM_FULL)
        return None if self._in_memory or session.durable is None else session.durable.after_commit

    def repeat_pubrel(self, packet_id: int) -> None:
        """It is not an answer, so it does not wait for other answers."""
        self._pieces.append(_HEADS[PacketType.PUBREL] + PACKET_ID[packet_id])
        self._sent[PacketType.PUBREL] += 1

    def _settle(self, owed: Owed, wire: bytes) -> None:
        self._pieces += self.ledger.settle(owed, wire)
        self._review()

    def hold(self, wait: Wait, weight: float, owed: Owed | None = None, wire: bytes = b"") -> None:
        """So many bytes of what the client sent wait until `wait` calls back, and with them an answer, if there is
        one."""
        committer, gathering = self._context.services.committer, 0
        self._unacknowledged += weight
        if committer is not None:
            committer.noted += weight
            gathering = committer.gathering
        wait(partial(self._context.cast, mail.Stored(gathering, weight, owed, wire)))
        self._review()

    def stored(self, what: mail.Stored) -> None:
        committer = self._context.services.committer
        self._unacknowledged -= what.weight
        # everybody was done with it before it was in a batch
        if committer is not None and committer.gathering == what.gathering:
            committer.noted -= what.weight
        if what.owed is not None:
            self._pieces += self.ledger.settle(what.owed, what.wire)
        if self._crowded:
            self._review()

    def _review(self) -> None:
        """Whether the client is read from."""
        channel = self._channel
        if channel is None:
            return
        committer = self._context.services.committer
        owed = self.ledger.answers / self._max_owed
        if self._max_unacknowledged:
            owed = max(owed, self._unacknowledged / self._max_unacknowledged)
        crowd = self._unacknowledged > 0 and committer is not None and committer.is_crowded
        if self._crowded and owed <= 0.5 and not crowd:
            self._crowded = False
            channel.cast(mail.Resume(self))
        elif (owed > 1 or crowd) and not self._crowded:
            self._crowded = True
            channel.cast(mail.Pause(self))
            if owed <= 1:
                report, client_id = self._context.services.limit_report, channel.client.client_id
                report.acted(LimitKind.UNCOMMITTED_PUBLISHERS, client_id, MAX_UNCOMMITTED)
