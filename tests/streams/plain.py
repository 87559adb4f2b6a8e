"""What a stream is, said as plainly as possible: all messages in a dictionary, every question answered by looking at
all of them."""

from dataclasses import dataclass, field, replace
from math import inf

from trunkline.mqtt.topics import matches
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, Discard, Retention, StreamConfig


@dataclass
class PlainMessage:
    topic: str
    payload: bytes
    time: float
    identity: str | None = None
    rollup: str = ""
    #: Whole seconds, or `never`.
    ttl: str = ""
    reason: str = ""
    #: Its life is over then, once it is stored.
    deadline: float = inf
    is_stored: bool = False

    @property
    def size(self) -> int:
        given = {"Nats-Msg-Id": self.identity, "Nats-Rollup": self.rollup}
        given |= {"Nats-TTL": f"{self.ttl}s" if self.reason else self.ttl, "Nats-Marker-Reason": self.reason}
        properties = sum(1 + 2 + len(name) + 2 + len(value) for name, value in given.items() if value)
        return len(self.topic) + len(self.payload) + properties


@dataclass
class PlainConsumer:
    config: ConsumerConfig
    position: int = 0
    starts: list[int] = field(default_factory=list[int])
    consumer_sequence: int = 0
    #: Sequence to deadline, count and number of the delivery order.
    outstanding: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])

    def matches(self, topic: str) -> bool:
        return not self.config.filters or any(matches(each, topic) for each in self.config.filters)


class PlainStream:
    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.messages: dict[int, PlainMessage] = {}
        self.last = config.first_sequence - 1
        self.identities: dict[str, tuple[int, float]] = {}
        self.consumers: dict[str, PlainConsumer] = {}

    def copy(self) -> "PlainStream":
        other = PlainStream(self.config)
        other.messages = {sequence: replace(message) for sequence, message in self.messages.items()}
        other.last, other.identities = self.last, dict(self.identities)
        other.consumers = {
            name: replace(consumer, starts=list(consumer.starts), outstanding=dict(consumer.outstanding))
            for name, consumer in self.consumers.items()
        }
        return other

    @property
    def byte_size(self) -> int:
        return sum(message.size for message in self.messages.values())

    def of(self, topic: str) -> list[int]:
        return [sequence for sequence, message in self.messages.items() if message.topic == topic]

    # Messages

    def publish(self, message: PlainMessage) -> bool:
        """False: it is refused."""
        config = self.config
        identity = message.identity
        if identity is not None and config.duplicate_window:
            known = self.identities.get(identity)
            if known is not None and known[1] >= message.time - config.duplicate_window:
                return True
        if message.rollup and not (config.allow_rollup and message.rollup in ("sub", "all")):
            return False
        if message.ttl and not (config.allow_message_ttl and message.ttl != "0"):
            return False
        if 0 < config.max_message_size < message.size or 0 < config.max_bytes < message.size:
            return False
        if config.discard is Discard.NEW:
            if 0 < config.max_messages <= len(self.messages):
                return False
            if 0 < config.max_bytes < self.byte_size + message.size:
                return False
            if config.discard_new_per_topic and len(self.of(message.topic)) >= config.max_messages_per_topic:
                return False
        self.last += 1
        wanted = any(consumer.matches(message.topic) for consumer in self.consumers.values())
        if config.retention is not Retention.INTEREST or wanted:
            for each in {"": [], "sub": self.of(message.topic), "all": list(self.messages)}[message.rollup]:
                self.remove(each)
            self.messages[self.last] = message
            if message.ttl not in ("", "never"):
                least = 0.0 if config.max_messages_per_topic == 1 else config.delete_marker_ttl
                message.deadline = message.time + max(float(message.ttl), least)
        if identity is not None:
            self.identities[identity] = (self.last, message.time)
        return True

    def trim(self, now: float) -> None:
        config = self.config
        if config.max_messages_per_topic:
            for topic in {message.topic for message in self.messages.values()}:
                for sequence in self.of(topic)[: -config.max_messages_per_topic]:
                    self.remove(sequence)
        for sequence, message in list(self.messages.items()):
            too_many = 0 < config.max_messages < len(self.messages)
            too_much = 0 < config.max_bytes < self.byte_size
            if 0 < config.max_age <= now - message.time and message.ttl != "never":
                self.end(sequence, now)
            elif too_many or too_much:
                self.remove(sequence)
        over = [(each.deadline, sequence) for sequence, each in self.messages.items() if each.is_stored]
        for deadline, sequence in sorted(over):
            if deadline <= now:
                self.end(sequence, now)

    def end(self, sequence: int, now: float) -> None:
        """Its time is over."""
        message, seconds = self.messages[sequence], self.config.delete_marker_ttl
        self.remove(sequence)
        if seconds and not message.reason and not self.of(message.topic):
            wanted = any(consumer.matches(message.topic) for consumer in self.consumers.values())
            if self.config.retention is not Retention.INTEREST or wanted:
                self.last += 1
                self.messages[self.last] = PlainMessage(
                    message.topic, b"", now, None, "sub", f"{seconds:g}", "MaxAge", now + seconds
                )

    def commit(self, now: float) -> None:
        """All is stored, and what follows from that."""
        while not all(message.is_stored for message in self.messages.values()):
            for message in self.messages.values():
                message.is_stored = True
            self.trim(now)

    def remove(self, sequence: int) -> None:
        del self.messages[sequence]
        for consumer in self.consumers.values():
            consumer.outstanding.pop(sequence, None)

    def purge(self, topic_filter: str | None, sequence: int | None, keep: int | None) -> int:
        found = [
            each
            for each, message in self.messages.items()
            if topic_filter is None or matches(topic_filter, message.topic)
        ]
        if sequence is not None:
            found = [each for each in found if each < sequence]
        if keep:
            found = found[:-keep]
        for each in found:
            self.remove(each)
        return len(found)

    # Consumers

    def add(self, name: str, config: ConsumerConfig) -> None:
        consumer = PlainConsumer(config)
        mine = {sequence: each for sequence, each in self.messages.items() if consumer.matches(each.topic)}
        end, policy = self.last + 1, config.deliver_policy
        if policy is DeliverPolicy.NEW:
            consumer.position = end
        elif policy is DeliverPolicy.LAST:
            consumer.position = max(mine, default=end)
        elif policy is DeliverPolicy.LAST_PER_TOPIC:
            consumer.position = end
            consumer.starts = sorted({message.topic: sequence for sequence, message in mine.items()}.values())
        elif policy is DeliverPolicy.BY_START_SEQUENCE:
            consumer.position = config.start_sequence or 0
            consumer.position = min(consumer.position, end)
        elif policy is DeliverPolicy.BY_START_TIME:
            consumer.position = min(
                (sequence for sequence, each in self.messages.items() if each.time >= (config.start_time or 0)),
                default=end,
            )
        self.consumers[name] = consumer

    def pending(self, consumer: PlainConsumer) -> list[int]:
        starts = [sequence for sequence in consumer.starts if sequence in self.messages]
        return starts + [
            sequence
            for sequence, message in self.messages.items()
            if sequence >= consumer.position and consumer.matches(message.topic)
        ]

    def again(self, consumer: PlainConsumer, now: float) -> list[int]:
        """What has to come once more."""
        due = sorted((deadline, sequence) for sequence, (deadline, _) in consumer.outstanding.items())
        return [sequence for deadline, sequence in due if deadline <= now]

    def fetch(self, consumer: PlainConsumer, limit: int, now: float) -> list[tuple[int, int, int, int]]:
        """Sequence, consumer sequence, count and what is behind, of each message that is delivered."""
        config, fetched = consumer.config, list[tuple[int, int, int, int]]()
        if config.pause_until is not None and now < config.pause_until:
            return []
        for sequence in self.again(consumer, now):
            if len(fetched) == limit:
                break
            count = consumer.outstanding[sequence][1]
            if 0 < config.max_deliver <= count:
                del consumer.outstanding[sequence]
                continue
            consumer.consumer_sequence += 1
            consumer.outstanding[sequence] = (now + config.wait_after(count + 1), count + 1)
            fetched.append((sequence, consumer.consumer_sequence, count + 1, len(self.pending(consumer))))
        for sequence in self.pending(consumer):
            if len(fetched) == limit or 0 < config.max_ack_pending <= len(consumer.outstanding):
                break
            if sequence in consumer.starts:
                consumer.starts.remove(sequence)
                if not consumer.matches(self.messages[sequence].topic):
                    continue  # it had other filters
            else:
                consumer.position = sequence + 1
            consumer.consumer_sequence += 1
            if config.ack_policy is not AckPolicy.NONE:
                consumer.outstanding[sequence] = (now + config.wait_after(1), 1)
            fetched.append((sequence, consumer.consumer_sequence, 1, len(self.pending(consumer))))
            if config.ack_policy is AckPolicy.NONE:
                self.done(sequence)
        return fetched

    def wants(self, consumer: PlainConsumer, sequence: int) -> bool:
        return sequence in consumer.outstanding or sequence in self.pending(consumer)

    def done(self, sequence: int) -> None:
        """A consumer needs the message no more."""
        if self.config.retention is not Retention.LIMITS and sequence in self.messages:
            self.sweep([sequence])

    def sweep(self, sequences: list[int]) -> None:
        for sequence in sequences:
            if not any(self.wants(consumer, sequence) for consumer in self.consumers.values()):
                self.remove(sequence)

    def ack(self, consumer: PlainConsumer, sequence: int) -> None:
        if sequence not in consumer.outstanding:
            return
        done = [sequence]
        if consumer.config.ack_policy is AckPolicy.ALL:
            done = [each for each in consumer.outstanding if each <= sequence]
        for each in done:
            del consumer.outstanding[each]
        for each in done:
            self.done(each)

    def update(self, name: str, filters: tuple[str, ...], position: int) -> None:
        consumer = self.consumers[name]
        consumer.config, consumer.position = replace(consumer.config, filters=filters), position
        if self.config.retention is Retention.INTEREST:
            self.sweep(list(self.messages))

    def delete(self, name: str) -> None:
        del self.consumers[name]
        if self.config.retention is Retention.INTEREST:
            self.sweep(list(self.messages))
