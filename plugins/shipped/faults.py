"""faults: clients request faults, so that their tests show how they handle them.

Every packet that goes to the broker can carry the request, as MQTT 5.0 user properties; the names are those of the
Azure IoT Operations SDKs, whose test suites need a broker that supports them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.config.units import Duration, Whole
from trunkline.hooks import ClientInfo, Deny
from trunkline.hooks.priorities import FAULTS
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Connect, PacketType, SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.plugins import Context, Settings, hook, setting

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = "fault:"
DISCONNECT: Final = "fault:disconnect"
DELAY: Final = "fault:delay"
REQUEST_ID: Final = "fault:requestid"
#: The packet that each request rejects, and the packet whose reason codes it may use.
REJECT: Final = {
    PacketType.CONNECT: ("fault:rejectconnect", PacketType.CONNACK),
    PacketType.PUBLISH: ("fault:rejectpublish", PacketType.PUBACK),
    PacketType.SUBSCRIBE: ("fault:rejectsubscribe", PacketType.SUBACK),
    PacketType.UNSUBSCRIBE: ("fault:rejectunsubscribe", PacketType.UNSUBACK),
}
MAX_REQUEST_ID: Final = 256
_TEXT: Final = "the requested fault"
#: The state of a connection: the answer to its CONNECT, and to the last packet with several entries.
_CONNECT: Final = "faults.connect"
_PACKET: Final = "faults.packet"


class FaultSettings(Settings):
    """Faults that clients request by user properties. For tests, never for production."""

    max_delay: Duration = setting(3600.0, "Longest delay before a connection is ended.", "seconds")
    max_request_ids: Whole = setting(
        100_000, "Request ids that are remembered. When there are more, the oldest is forgotten.", ge=1
    )


@dataclass(frozen=True, slots=True)
class _Answered:
    properties: Properties
    answer: Deny | None


class Faults:
    def __init__(self, context: Context[FaultSettings]) -> None:
        self._context = context
        #: Request ids whose fault has been injected, with the packet type, in the order in which they came.
        self._seen: dict[tuple[PacketType, str], None] = context.kept.setdefault("seen", {})
        #: Connections that will be ended later: when, and why; and the functions that stop their timers.
        self._delayed: dict[ClientInfo, tuple[float, Reason]] = context.kept.setdefault("delayed", {})
        self._timers: dict[ClientInfo, Callable[[], None]] = {}
        if not context.replaces:
            self._delayed.clear()
        for client in self._delayed:
            self._start_timer(client)
        self._injected = context.counter("injected", "Faults that clients requested and got.")
        self._ignored = context.counter("ignored", "Requests for faults that were invalid or could not be fulfilled.")
        context.logger.warning("any client can make this broker fail: this is for tests, never for production")

    # Packets of clients

    @hook("client.connect", priority=FAULTS)
    def connect(self, client: ClientInfo, packet: Connect) -> None:
        denial = self._answer(PacketType.CONNECT, client, packet.properties)
        if denial is not None:
            client.attributes[_CONNECT] = denial

    @hook("client.authenticate", priority=FAULTS)
    @hook("client.enhanced_authenticate", priority=FAULTS)
    def authenticate(self, client: ClientInfo, _: object) -> Deny | None:
        denial = client.attributes.get(_CONNECT)
        return denial if isinstance(denial, Deny) else None

    @hook("message.publish", priority=FAULTS)
    def publish(self, client: ClientInfo, message: Message) -> Deny | None:
        return self._answer(PacketType.PUBLISH, client, message.properties)

    @hook("client.subscribe", priority=FAULTS)
    def subscribe(self, client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> Deny | None:
        return self._answer_once(PacketType.SUBSCRIBE, client, properties)

    @hook("client.unsubscribe", priority=FAULTS)
    def unsubscribe(self, client: ClientInfo, filter: str, properties: Properties) -> Deny | None:
        return self._answer_once(PacketType.UNSUBSCRIBE, client, properties)

    def _answer_once(self, packet: PacketType, client: ClientInfo, properties: Properties) -> Deny | None:
        """All entries of a packet get the same answer, though its request id counts at the first."""
        last = client.attributes.get(_PACKET)
        if not isinstance(last, _Answered) or last.properties is not properties:
            last = client.attributes[_PACKET] = _Answered(properties, self._answer(packet, client, properties))
        return last.answer

    def _answer(self, packet: PacketType, client: ClientInfo, properties: Properties) -> Deny | None:
        if not properties:
            return None
        asked: dict[str, str] = {}
        for name, value in properties.get("user_property", ()):
            if name.startswith(PREFIX):
                asked.setdefault(name, value)
        try:
            if not asked or self._had_its_fault(packet, asked.get(REQUEST_ID)):
                return None
            answer, done = self._fault(packet, client, asked)
        except ValueError as error:
            self._ignored.add()
            self._context.logger.warning("no fault: %s", error, extra={"client": client.client_id})
            return None
        self._injected.add(done)
        return answer

    def _had_its_fault(self, packet: PacketType, request_id: str | None) -> bool:
        if request_id is None:
            return False
        if len(request_id) > MAX_REQUEST_ID:
            raise ValueError(f"its {REQUEST_ID} is longer than {MAX_REQUEST_ID} characters")
        if (packet, request_id) in self._seen:
            return True
        if len(self._seen) >= self._context.settings.max_request_ids:
            del self._seen[next(iter(self._seen))]
        self._seen[packet, request_id] = None
        return False

    def _fault(self, packet: PacketType, client: ClientInfo, asked: dict[str, str]) -> tuple[Deny | None, int]:
        """The answer to the packet, and the number of faults in it."""
        reject, answered_by = REJECT[packet]
        if packet is not PacketType.CONNECT and DISCONNECT in asked:
            reason = _reason(DISCONNECT, asked[DISCONNECT], PacketType.DISCONNECT, 0)
            if DELAY not in asked:
                return Deny(reason, _TEXT, disconnect=True), 1
            self._disconnect_later(client, asked[DELAY], reason)
            return None, 1
        if reject in asked:
            return Deny(_reason(reject, asked[reject], answered_by, Reason.UNSPECIFIED_ERROR), _TEXT), 1
        return None, 0

    # Ending a connection later

    def _disconnect_later(self, client: ClientInfo, text: str, reason: Reason) -> None:
        seconds, most = _number(text), self._context.settings.max_delay
        if not 0 <= seconds <= most:
            raise ValueError(f"{DELAY} {text[:50]!r} is not a whole number of 0 to {most:g} seconds")
        due = self._context.now + seconds
        sooner = self._delayed.get(client)
        if sooner is None or due < sooner[0]:
            self._stop_timer(client)
            self._delayed[client] = due, reason
            self._start_timer(client)

    @hook("client.disconnected")
    def disconnected(self, client: ClientInfo, reason: Reason, text: str) -> None:
        """A later connection of the same client has not requested it."""
        self._stop_timer(client)

    def _start_timer(self, client: ClientInfo) -> None:
        due, reason = self._delayed[client]
        left = max(0.0, due - self._context.now)
        self._timers[client] = self._context.after(left, self._context.kick, client.client_id, reason, _TEXT)

    def _stop_timer(self, client: ClientInfo) -> None:
        if self._delayed.pop(client, None) is not None:
            self._timers.pop(client)()


def _reason(word: str, text: str, packet: PacketType, least: int) -> Reason:
    """Raises ValueError if such a packet cannot have this reason code."""
    code = _number(text)
    if code < least or code not in REASONS[packet, False]:
        raise ValueError(f"{word} {text[:50]!r} is not a reason code that a {packet.name} can have here")
    return Reason(code)


def _number(text: str) -> int:
    """A small whole number; -1 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
