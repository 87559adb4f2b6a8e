"""The outgoing half of a client's session: requests in order, and the window of what is not answered.

It outlives connections. A new one that resumes the session gets all that was not answered once more, in the order in
which it was first sent: PUBRELs, PUBLISH packets with DUP and their old packet ids, SUBSCRIBE and UNSUBSCRIBE. What is
still queued follows.  # [MQTT-4.4.0-1] [MQTT-4.6.0-1]
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from trunkline.client.bursts import MAX_BATCH, gathered
from trunkline.client.clearing import Clearing
from trunkline.client.errors import ClientError, NotSentAgain, RequestDiscarded
from trunkline.client.requests import (
    WITH_PROPERTIES,
    PublishRequest,
    PublishRow,
    RequestState,
    SubscribeRequest,
    UnsubscribeRequest,
)
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import PacketType, Pubcomp, Pubrel
from trunkline.mqtt.reasons import FAILURE, Reason
from trunkline.mqtt.session.states import Effect, State
from trunkline.mqtt.session.window import MAX_PACKET_ID, Inflight
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.client.link import Link
    from trunkline.client.requests import ClientRequest
    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements, Suback, Unsuback
    from trunkline.mqtt.publication import Publication

_log = logging.getLogger("trunkline.client")

#: Packet ids of PUBLISH. The others are those of SUBSCRIBE and UNSUBSCRIBE, so that the two never meet.
MAX_PUBLISH_ID: Final = 64_511
FIRST_SUBSCRIBE_ID: Final = MAX_PUBLISH_ID + 1

#: Requests in the queue that will not be sent, beside as many again as will be.
MAX_DISCARDED: Final = 64

#: So many messages without an answer are a burst: its answers are read together.
MANY_ANSWERS: Final = 256

#: What is answered message by message.
Publishing: TypeAlias = PublishRequest | PublishRow
#: A request whose answer is a single packet.
Asking: TypeAlias = SubscribeRequest | UnsubscribeRequest


class OutgoingHalf:
    __slots__ = (
        "_again",
        "_asked",
        "_clearing",
        "_last_id",
        "_link",
        "_max_bytes",
        "_queue",
        "_sequence",
        "_window",
        "on_orphans",
        "queued",
        "queued_bytes",
    )

    def __init__(self, max_bytes: int = 0) -> None:
        """`max_bytes` limits what waits for its acknowledgement; 0 means no limit."""
        self._max_bytes = max_bytes
        self._window = self._new_window()
        self._queue: deque[ClientRequest] = deque()
        #: Requests in the queue that somebody waits for, and their weight.
        self.queued = self.queued_bytes = 0
        #: SUBSCRIBE and UNSUBSCRIBE packets without an answer, by packet id, in the order in which they were sent.
        self._asked: dict[int, Asking] = {}
        #: Packet ids of those that a resumed session has not sent again.
        self._again: deque[int] = deque()
        self._last_id = FIRST_SUBSCRIBE_ID - 1
        self._sequence = 0
        self._link: Link | None = None
        self._clearing = Clearing(MAX_PUBLISH_ID)
        #: Called with topic filters that were granted when nobody waited for them any more.
        self.on_orphans: Callable[[list[str]], object] | None = None

    def _new_window(self) -> Inflight[Publishing]:
        return Inflight(0, self._max_bytes, MAX_PUBLISH_ID)

    # Connections

    def adopt(self) -> None:
        """The session has had another client."""
        self._clearing.begin()

    def attach(self, link: Link, now: float) -> None:
        """A connection is open: all that was sent before is sent again."""
        self._link = link
        self._window.resume(min(link.limits.receive_maximum, MAX_PUBLISH_ID))
        for packet_id, asked in [*self._asked.items()]:
            if (error := _refusal(asked, link)) is not None:
                del self._asked[packet_id]
                asked.finish(NotSentAgain(error))
                _log.warning("a request is given up: %s", asked.error)
                if isinstance(asked, SubscribeRequest):  # the server may have granted it
                    self._drop_orphans([each.filter for each in asked.requests])
        self._again = deque(self._asked)
        for request in self._queue:
            if not (request.is_done or request.abandoned) and (error := _refusal(request, link)) is not None:
                if request.state is RequestState.QUEUED:
                    self._leaves_queue(request)
                request.finish(error)
                _log.warning("a request is given up: %s", error)
        self.pump(now)

    def _drop_orphans(self, filters: list[str]) -> None:
        if self.on_orphans is not None:
            self.on_orphans(filters)

    def detach(self) -> None:
        self._link = None
        self._clearing.detach()

    def fail(self, error: ClientError) -> None:
        """The session is over: nothing will be answered any more."""
        requests = self.pending
        self.detach()
        self._window = self._new_window()
        self._queue.clear()
        self._asked.clear()
        self.queued = self.queued_bytes = 0
        for request in requests:
            request.finish(error)

    @property
    def pending(self) -> list[ClientRequest]:
        """All that is not answered; what was sent in part is in it twice."""
        sent = [request for target in self._window.all_targets for request in target.requests]
        return [*sent, *self._asked.values(), *self._queue]

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of the server is expected."""
        return bool(self._asked) or len(self._window) > 0 or bool(self._queue)

    @property
    def in_flight(self) -> int:
        """Messages and subscriptions that are sent and not answered."""
        return len(self._window) + len(self._asked)

    @property
    def answers_may_wait(self) -> bool:
        """Whether many answers are to come, and nothing waits for the room that they make."""
        return len(self._window) >= MANY_ANSWERS and (self._window.room > 0 or not self._queue)

    # Requests

    def add(self, request: ClientRequest) -> None:
        """Queue a request, unless the server does not allow it. `pump` sends it."""
        self._sequence += 1
        request.sequence = self._sequence
        link = self._link
        if link is not None and (error := _refusal(request, link)) is not None:
            request.finish(error)
            return
        self._queue.append(request)
        self.queued += 1
        self.queued_bytes += request.weight

    def _leaves_queue(self, request: ClientRequest) -> None:
        self.queued -= 1
        self.queued_bytes -= request.weight

    def abandon(self, request: ClientRequest) -> None:
        """Nobody waits for it any more. It is not sent, unless it was already: then its answer still comes."""
        if request.abandoned or request.is_done:
            return
        request.abandoned = True
        if request.state is RequestState.QUEUED:
            self._leaves_queue(request)
            request.finish(RequestDiscarded("the request was cancelled before it was sent"))
            self._tidy()
        elif isinstance(request, PublishRequest):
            request.drop_rest()

    def _tidy(self) -> None:
        """Without a connection, nothing else takes requests out of the queue that are not to be sent."""
        if len(self._queue) > 2 * self.queued + MAX_DISCARDED:
            self._queue = deque(request for request in self._queue if not request.is_done)

    def discard_oldest(self, error: ClientError) -> bool:
        """Take the request that waits longest out of the queue. False if none is there that was not begun."""
        for request in self._queue:
            if request.state is RequestState.QUEUED and not request.abandoned and request.may_be_discarded:
                self._leaves_queue(request)
                request.finish(error)
                self._tidy()
                return True
        return False

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        link, queue = self._link, self._queue
        if link is None or not self._send_again(link, now):
            return
        while queue and not link.is_full:
            request = queue[0]
            if request.abandoned or request.is_done:
                queue.popleft()
            elif not self._send(request, link, now):
                return

    def _begin(self, request: ClientRequest) -> None:
        """Some of it is sent now."""
        if request.state is RequestState.QUEUED:
            request.state = RequestState.SENT
            self._leaves_queue(request)

    def _send(self, request: ClientRequest, link: Link, now: float) -> bool:
        """Send the first request of the queue, or some of it. Whether there was room."""
        if isinstance(request, PublishRequest):
            room = self._window.room if request.qos else MAX_BATCH
            if request.qos == 2 and not self._clearing.is_over:
                room = min(room, self._clearing.room(self._window.top, link))
            if not room:
                return False
            if request.form:
                self._send_row(self._alike(request, min(room, MAX_BATCH)), link, now)
            else:
                self._send_part(request, request.part(min(room, MAX_BATCH)), link, now)
        elif isinstance(request, SubscribeRequest | UnsubscribeRequest):
            packet_id = self._free_id()
            if not packet_id:
                return False
            self._queue.popleft()
            self._begin(request)
            self._asked[packet_id] = request
            link.send(request.packet(packet_id))
        return True

    def _alike(self, first: PublishRequest, limit: int) -> list[PublishRequest]:
        """The first request of the queue and those behind it that are sent with it."""
        found: list[PublishRequest] = []
        form = first.form
        for request in islice(self._queue, limit):
            if request.form != form:
                break
            found.append(cast("PublishRequest", request))
        return found

    def _send_row(self, requests: list[PublishRequest], link: Link, now: float) -> None:
        """Send requests of one message each."""
        first = requests[0]
        topics = [request.topic for request in requests]
        if topics.count(first.topic) == len(topics):
            del topics[1:]
        payloads = [request.payloads[0] for request in requests]
        if first.form & WITH_PROPERTIES:
            each = [request.message_properties for request in requests]
            blocks = [request.block for request in requests]
            publication = gathered(topics, payloads, first.qos, first.retain, each, blocks, link.version)
        else:
            publication = gathered(topics, payloads, first.qos, first.retain, version=link.version)
        # packet ids may be free for the first of them only
        del requests[self._publish(publication, PublishRow(requests), link, now) :]
        queue = self._queue
        for request in requests:
            queue.popleft()
            request.state = RequestState.SENT
            request.sent = 1
            request.payloads = ()
            self.queued_bytes -= request.weight
        self.queued -= len(requests)
        if not first.qos:
            for request in requests:
                request.finish()

    def _send_part(self, request: PublishRequest, payloads: Sequence[bytes], link: Link, now: float) -> None:
        """Send the next messages of a request."""
        each = [request.message_properties] * len(payloads) if request.message_properties else ()
        publication = gathered(
            [request.topic], payloads, request.qos, request.retain, each, [request.block], link.version
        )
        self._begin(request)
        request.sent += self._publish(publication, request, link, now)
        if request.sent == request.count:
            self._queue.popleft()
            if not request.qos:
                request.finish()

    def _publish(self, publication: Publication, target: Publishing, link: Link, now: float) -> int:
        """Returns how many of the messages have been sent, one at least."""
        if not publication.qos:
            link.publish(publication, range(0))
            return publication.count
        packet_ids = self._window.insert(publication, target, publication.qos, now)  # [MQTT-3.3.4-9]
        link.publish(publication.part(0, len(packet_ids)), packet_ids)
        return len(packet_ids)

    def _free_id(self) -> int:
        """The next free packet id for SUBSCRIBE; 0 if there is none."""
        for _ in range(FIRST_SUBSCRIBE_ID, MAX_PACKET_ID + 1):
            self._last_id += 1
            if self._last_id > MAX_PACKET_ID:
                self._last_id = FIRST_SUBSCRIBE_ID
            if self._last_id not in self._asked:
                return self._last_id
        return 0

    def _send_again(self, link: Link, now: float) -> bool:
        """Send again what was sent on an earlier connection, in the order of the requests. Whether all of it is."""
        window, again = self._window, self._again
        while again or window.unsent:
            entry = window.entry_again
            # PUBRELs come first, whatever they belong to
            if again and again[0] not in self._asked:  # answered before it was sent again
                again.popleft()
                continue
            if again and (
                entry is None
                or (entry.state is not State.WAIT_PUBCOMP and self._asked[again[0]].sequence < entry.target.sequence)
            ):
                packet_id = again.popleft()
                link.send(self._asked[packet_id].packet(packet_id))
                continue
            found = window.next_again(now)
            if found is None:
                return False
            effect, packet_id, entry = found
            if effect is Effect.PUBREL:
                link.acknowledge(PacketType.PUBREL, (packet_id,))
                continue
            message = entry.message(packet_id)
            try:
                link.publish_again(message, packet_id)
            except ClientError as cause:
                error = NotSentAgain(cause)
                _log.warning("a message to %s is given up: %s", message.topic, error)
                if window.withdraw(packet_id, now) is Effect.PUBREL:
                    link.acknowledge(PacketType.PUBREL, (packet_id,))
                entry.target.given_up(packet_id - entry.first_id, error)
        return True

    # Answers

    def answered(self, packet: Acknowledgement | Acknowledgements, now: float) -> None:
        """PUBACK, PUBREC or PUBCOMP came.

        Raises:
            ProtocolError: a message waits for an acknowledgement of another kind.
        """
        link = self._link
        if link is None:
            return
        for effect, packet_ids, messages in self._window.answered(packet, now):
            match effect:
                case Effect.TAKEN | Effect.COMPLETED:
                    # of an exchange that is over anyhow, a failure says no more than that it is
                    reason = packet.reason if packet.reason < FAILURE else 0
                    for entry, together in messages:
                        entry.target.answered(entry.numbers(together), reason, packet.properties)
                case Effect.REFUSED:
                    for entry, (packet_id,) in messages:
                        payload = entry.message(packet_id).payload
                        entry.target.refused(packet_id - entry.first_id, payload, packet.reason, packet.properties)
                case Effect.RELEASED | Effect.PUBREL:
                    link.acknowledge(PacketType.PUBREL, packet_ids)
                case Effect.PUBREL_NOT_FOUND:
                    for packet_id in packet_ids:
                        link.send(Pubrel(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
                case _:
                    pass

    def pubcomp(self, packet: Acknowledgement | Acknowledgements, now: float) -> None:
        if not self._clearing.is_over:
            left = self._clearing.answered(packet.packet_ids)
            if len(left) < len(packet.packet_ids):
                for packet_id in left:
                    self.answered(Pubcomp(packet_id, packet.reason), now)
                return
        self.answered(packet, now)

    def suback(self, packet: Suback) -> None:
        # what is answered wrongly is sent again on the next connection
        request = self._asked.get(packet.packet_id)
        if not isinstance(request, SubscribeRequest):
            raise ProtocolError(f"SUBACK for packet identifier {packet.packet_id}, which is not of a SUBSCRIBE")
        if len(packet.reasons) != len(request.requests):
            raise ProtocolError(f"{len(packet.reasons)} reasons in SUBACK for {len(request.requests)} topic filters")
        del self._asked[packet.packet_id]
        request.answered(packet)  # [MQTT-3.9.3-1]
        if (request.abandoned or request.error is not None) and request.granted:
            self._drop_orphans(request.granted)

    def unsuback(self, packet: Unsuback) -> None:
        request = self._asked.get(packet.packet_id)
        if not isinstance(request, UnsubscribeRequest):
            raise ProtocolError(f"UNSUBACK for packet identifier {packet.packet_id}, which is not of an UNSUBSCRIBE")
        # a 3.x server gives none
        if self._link is not None and self._link.version is Version.V5 and len(packet.reasons) != len(request.filters):
            raise ProtocolError(f"{len(packet.reasons)} reasons in UNSUBACK for {len(request.filters)} topic filters")
        del self._asked[packet.packet_id]
        request.answered(packet)  # [MQTT-3.11.3-1]


def _refusal(request: ClientRequest, link: Link) -> ClientError | None:
    """Why the server of this connection does not take it, if it does not."""
    try:
        request.check(link.limits, link.version)
    except ClientError as error:
        return error
    return None
