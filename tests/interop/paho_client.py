"""paho-mqtt with every callback turned into something that a test can wait for."""

import queue
import threading
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from paho.mqtt.client import (
    CallbackAPIVersion,
    Client,
    MQTTMessage,
    MQTTMessageInfo,
    MQTTv5,
    MQTTv31,
    MQTTv311,
)
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.server import Broker

V31, V311, V5 = MQTTv31, MQTTv311, MQTTv5
VERSIONS: Final = {"v31": V31, "v311": V311, "v5": V5}
PATIENCE: Final = 60.0
NEVER: Final = 0xFFFFFFFF


def properties(packet: int, **values: Any) -> Properties:
    """`properties(PacketTypes.PUBLISH, TopicAlias=1)`."""
    made = Properties(packet)
    for key, value in values.items():
        setattr(made, key, value)
    return made


def publish_properties(**values: Any) -> Properties:
    return properties(PacketTypes.PUBLISH, **values)


T = TypeVar("T")


class Answers(Generic[T]):
    """Callbacks by packet id; an answer may come before publish() has returned its id."""

    def __init__(self) -> None:
        self._answers: dict[int, T] = {}
        self._changed = threading.Condition()

    def put(self, mid: int, answer: T) -> None:
        with self._changed:
            self._answers[mid] = answer
            self._changed.notify_all()

    def wait(self, mid: int) -> T:
        with self._changed:
            assert self._changed.wait_for(lambda: mid in self._answers, PATIENCE), f"no answer to packet {mid}"
            return self._answers.pop(mid)


class Paho:
    """A connected client; its network thread is joined on the way out."""

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        expiry: int | None = None,
        will: tuple[str, bytes, int, bool] | None = None,
        will_properties: Properties | None = None,
        connect_properties: dict[str, Any] | None = None,
        keep_alive: int = 60,
        manual_ack: bool = False,
        max_inflight: int = 20,
    ) -> None:
        self.broker, self.version, self.clean, self.keep_alive = broker, version, clean, keep_alive
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if version == V5 else clean,
            protocol=version,
            manual_ack=manual_ack,
            reconnect_on_failure=False,
        )
        self.client.max_inflight_messages_set(max_inflight)
        if will is not None:
            self.client.will_set(*will, properties=will_properties)
        self._connect_properties: Properties | None = None
        if version == V5:
            values = dict(connect_properties or {})
            if expiry is not None:
                values["SessionExpiryInterval"] = expiry
            self._connect_properties = properties(PacketTypes.CONNECT, **values)
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.connacks: queue.Queue[tuple[bool, ReasonCode, Properties | None]] = queue.Queue()
        self.disconnects: queue.Queue[ReasonCode] = queue.Queue()
        self._subacks = Answers[list[ReasonCode]]()
        self._unsubacks = Answers[list[ReasonCode]]()
        self._published = Answers[ReasonCode]()
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe
        self.client.on_unsubscribe = self._on_unsubscribe
        self.client.on_publish = self._on_publish
        self.session_present = False
        self.connack: Properties | None = None

    def _on_connect(self, _client: Client, _data: Any, flags: Any, reason: ReasonCode, props: Any) -> None:
        self.connacks.put((flags.session_present, reason, props))

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, reason: ReasonCode, _props: Any) -> None:
        self.disconnects.put(reason)

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self.messages.put(message)

    def _on_subscribe(self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _props: Any) -> None:
        self._subacks.put(mid, reasons)

    def _on_unsubscribe(self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _props: Any) -> None:
        self._unsubacks.put(mid, reasons)

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _props: Any) -> None:
        self._published.put(mid, reason)

    # -- connection

    def connect(self) -> ReasonCode:
        """CONNECT, and the reason of the CONNACK."""
        if self.version == V5:
            self.client.connect(
                self.broker.host,
                self.broker.port,
                self.keep_alive,
                clean_start=self.clean,
                properties=self._connect_properties,
            )
        else:
            self.client.connect(self.broker.host, self.broker.port, self.keep_alive)
        self.client.loop_start()
        self.session_present, reason, self.connack = self.connacks.get(timeout=PATIENCE)
        return reason

    def __enter__(self) -> Self:
        reason = self.connect()
        assert not reason.is_failure, str(reason)
        return self

    def disconnect(self, reason: int = 0, props: Properties | None = None) -> ReasonCode | None:
        """DISCONNECT; returns when the broker has closed."""
        if not self.client.is_connected():
            self.client.loop_stop()
            return None
        code = ReasonCode(PacketTypes.DISCONNECT, identifier=reason) if self.version == V5 else None
        self.client.disconnect(code, props)
        got = self.disconnects.get(timeout=PATIENCE)
        self.client.loop_stop()
        return got

    def drop(self) -> None:
        """Ends the connection without DISCONNECT."""
        sock = self.client.socket()
        assert sock is not None
        sock.shutdown(2)
        self.disconnects.get(timeout=PATIENCE)
        self.client.loop_stop()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.disconnect()

    # -- packets

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> int:
        """The reason code of the SUBACK. `identifier=` is the subscription identifier, the rest options of v5."""
        if self.version != V5:
            return self.subscribe_many((topic_filter, qos))[0]
        identifier = options.pop("identifier", None)
        props = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=identifier) if identifier else None
        _, mid = self.client.subscribe(topic_filter, options=SubscribeOptions(qos, **options), properties=props)
        assert mid is not None
        return self._subacks.wait(mid)[0].value

    def subscribe_many(self, *filters: tuple[str, int]) -> list[int]:
        """One SUBSCRIBE for all of them."""
        if self.version == V5:
            _, mid = self.client.subscribe([(topic_filter, SubscribeOptions(qos)) for topic_filter, qos in filters])
        else:
            _, mid = self.client.subscribe(list(filters))
        assert mid is not None
        return [reason.value for reason in self._subacks.wait(mid)]

    def unsubscribe(self, *filters: str) -> list[int]:
        """The UNSUBACK's reason codes; 3.1.1 has none."""
        _, mid = self.client.unsubscribe(list(filters))
        assert mid is not None
        return [reason.value for reason in self._unsubacks.wait(mid)]

    def send(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, props: Properties | None = None
    ) -> MQTTMessageInfo:
        """Without waiting."""
        return self.client.publish(topic, payload, qos, retain, properties=props)

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, props: Properties | None = None
    ) -> int:
        """The reason code of the PUBACK or PUBREC, once the exchange is complete (0 for QoS 0)."""
        info = self.send(topic, payload, qos, retain, props)
        return self._published.wait(info.mid).value

    def wait_published(self, info: MQTTMessageInfo) -> int:
        return self._published.wait(info.mid).value

    def receive(self) -> MQTTMessage:
        return self.messages.get(timeout=PATIENCE)

    def receive_many(self, number: int) -> list[MQTTMessage]:
        return [self.receive() for _ in range(number)]

    def assert_nothing_before(self, fence: str, through: "Paho | None" = None) -> None:
        """Nothing else is on its way: subscribes to `fence`, publishes to it, and that must be the next to come.

        True of what was published by `through` (by default this client), as only its order is promised.
        """
        self.subscribe(fence, 0)
        (through or self).publish(fence, b"fence", 0)
        message = self.receive()
        assert message.topic == fence, f"{message.topic} {message.payload[:40]!r} came before the fence"
        self.unsubscribe(fence)


def payloads(messages: list[MQTTMessage]) -> list[bytes]:
    return [message.payload for message in messages]
