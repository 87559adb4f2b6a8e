"""delayed-publish: a message to `$delayed/SECONDS/TOPIC` is published to TOPIC after that many seconds. Waiting
messages are in the broker's store.
"""

import re
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, TypeAlias

from trunkline.config.units import Flag, Size, Whole, WholeSeconds
from trunkline.hooks import ALLOW, TAKEN, Allow, ClientInfo, Deny, Withhold
from trunkline.hooks.client import client_from_plain, client_to_plain
from trunkline.hooks.points import Action
from trunkline.hooks.priorities import TOPIC_SYNTAX
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import validate_name
from trunkline.mqtt.versions import Version
from trunkline.plugins import Context, Settings, hook, setting
from trunkline.plugins.store import PluginStoreFull

PREFIX: Final = "$delayed/"
#: Topics that delayed messages cannot have.
NEVER_DELAYED: Final = (PREFIX, "$SYS/")
#: A greater number is not a delay but a time in seconds since the epoch.
MAX_DELAY: Final = 4_294_967
#: The memory that a message takes besides its bytes.
OVERHEAD: Final = 512
#: Messages that are published before other work gets its turn.
BATCH: Final = 100
_NUMBER: Final = re.compile("[0-9]{1,10}")

#: When a message is due in node time, its number, and its size. Publisher and message are in the store, under the
#: number.
Held: TypeAlias = tuple[float, int, int]


class DelayedSettings(Settings):
    """Messages to `$delayed/SECONDS/TOPIC` are published later."""

    max_delay: WholeSeconds = setting(MAX_DELAY, "Longest delay.", "seconds", ge=0, le=MAX_DELAY)
    max_messages: Whole = setting(100_000, "Messages that may wait. 0 means no limit.", "messages", ge=0)
    max_bytes: Size = setting(67_108_864, "Bytes that these may take. 0 means no limit.", "bytes", ge=0)
    check_access: Flag = setting(
        True, "Whether access rules are checked for the topic behind the delay, and not for the whole name."
    )


class DelayedPublish:
    def __init__(self, context: Context[DelayedSettings]) -> None:
        self._context = context
        self._settings = context.settings
        self._store = context.store
        self._held: list[Held] = [
            (due - self._epoch, int(number), size) for number, (due, size, *_) in self._store.items()
        ]
        heapify(self._held)
        self._last = max((number for _, number, _ in self._held), default=0)
        self._bytes = sum(size for _, _, size in self._held)
        #: The only timer: its deadline, and the function that stops it.
        self._due_at: float | None = None
        self._stop_timer = context.after(0, self._publish_due)
        self._delayed = context.counter("delayed", "Messages that were held back.")
        self._published = context.counter("published", "Messages that were published when they were due.")
        self._refused = context.counter("refused", "Messages that could not be held back, or not be published.")
        context.gauge("held", "Messages that wait.", lambda: len(self._held))
        context.gauge("held_bytes", "Bytes that these take.", lambda: self._bytes)
        context.command("list", self.rows)
        context.command("delete", self.delete)

    def start(self) -> None:
        self._context.forget_decisions()

    def stop(self) -> None:
        self._context.forget_decisions()

    # A message comes

    @hook("client.check_acl", priority=TOPIC_SYNTAX)
    def check_access(
        self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool
    ) -> Allow | Deny | None:
        """The rules for the topic behind the delay decide. A name without such a topic is refused later."""
        if action != "publish" or not topic.startswith(PREFIX) or not self._settings.check_access:
            return None
        inner = topic.split("/", 2)[2:]
        if not inner or inner[0].startswith(NEVER_DELAYED):
            return None
        return ALLOW if self._context.may(client, action, inner[0], qos, retain) else Deny()

    @hook("message.publish", priority=TOPIC_SYNTAX)
    def hold(self, client: ClientInfo, message: Message) -> Deny | Withhold | None:
        if not message.topic.startswith(PREFIX):
            return None
        try:
            delay, topic = self._read(message.topic)
        except ProtocolError as error:
            return self._refuse(Reason.TOPIC_NAME_INVALID, str(error))
        if self._settings.check_access and not self._context.may(client, "publish", topic, message.qos, message.retain):
            return self._refuse(Reason.NOT_AUTHORIZED, "")
        inner = Message(topic, message.payload, message.qos, message.retain, message.properties)
        size = len(encode_publish(inner, Version.V5)) + OVERHEAD
        limits = self._settings
        if 0 < limits.max_messages <= len(self._held) or 0 < limits.max_bytes < self._bytes + size:
            return self._refuse(Reason.QUOTA_EXCEEDED, "too many delayed messages")
        due, number = self._context.now + delay, self._last + 1
        try:
            self._store.put(
                _key(number), [due + self._epoch, size, client_to_plain(client), message_to_row(inner, self._epoch)]
            )
        except PluginStoreFull as error:
            return self._refuse(Reason.QUOTA_EXCEEDED, str(error))
        self._last = number
        self._bytes += size
        heappush(self._held, (due, number, size))
        self._set_timer()
        self._delayed.add()
        return TAKEN

    def _read(self, name: str) -> tuple[float, str]:
        """Delay and topic.

        Raises:
            ProtocolError: the name does not have this form.
        """
        number, slash, topic = name[len(PREFIX) :].partition("/")
        if not slash or not _NUMBER.fullmatch(number):
            raise ProtocolError("a delayed message goes to $delayed/SECONDS/TOPIC", Reason.TOPIC_NAME_INVALID)
        delay = float(number)
        if delay > MAX_DELAY:
            delay -= self._context.wall
        if not 0 <= delay <= self._settings.max_delay:
            raise ProtocolError(f"the delay must be 0 to {self._settings.max_delay} s", Reason.TOPIC_NAME_INVALID)
        validate_name(topic)
        if topic.startswith(NEVER_DELAYED):
            raise ProtocolError(f"messages to {topic[:5]} cannot be delayed", Reason.TOPIC_NAME_INVALID)
        return delay, topic

    def _refuse(self, reason: Reason, text: str) -> Deny:
        self._refused.add()
        return Deny(reason, text)

    # Waiting messages

    @property
    def _epoch(self) -> float:
        """What turns node time into the store's."""
        return self._store.now - self._context.now

    def _read_held(self, number: int) -> tuple[ClientInfo, Message]:
        _, _, client, row = self._store.get(_key(number))
        return client_from_plain(client), message_from_row(row, self._epoch)

    # Publishing

    def _set_timer(self) -> None:
        due_at = self._held[0][0] if self._held else None
        if due_at != self._due_at:
            self._stop_timer()
            self._due_at = due_at
            if due_at is not None:
                self._stop_timer = self._context.after(max(0.0, due_at - self._context.now), self._publish_due)

    def _publish_due(self) -> None:
        for _ in range(BATCH):
            if not self._held or self._held[0][0] > self._context.now:
                break
            _, number, size = heappop(self._held)
            client, message = self._read_held(number)
            self._bytes -= size
            self._store.delete(_key(number))
            if not isinstance(self._context.publish_as(client, message), int):
                self._refused.add()
            else:
                self._published.add()
        self._due_at = None
        self._set_timer()

    # Commands

    def rows(self, offset: int = 0, limit: int = 100) -> list[dict[str, object]]:
        """The waiting messages, in the order in which they will be published."""
        return [
            {
                "id": number,
                "due_in": max(0, round(due - self._context.now)),
                "topic": message.topic,
                "qos": message.qos,
                "retain": message.retain,
                "client": client.client_id,
                "bytes": len(message.payload),
            }
            for due, number, _ in nsmallest(offset + limit, self._held)[offset:]
            for client, message in (self._read_held(number),)
        ]

    def delete(self, id: int) -> str:
        """Delete a waiting message."""
        for place, (_, number, size) in enumerate(self._held):
            if number == id:
                del self._held[place]
                self._store.delete(_key(number))
                heapify(self._held)
                self._bytes -= size
                self._set_timer()
                return f"deleted {number}"
        raise LookupError(f"no delayed message {id}")


def _key(number: int) -> str:
    return f"{number:016}"
