"""What a layer is between, in tests without sockets: a transport that records, and an owner with its scheduler."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trunkline.actors import Actor, Scheduler
from trunkline.broker.net.transport import Ended, Event, Failed, Layer, Receiver

if TYPE_CHECKING:
    from trunkline.hooks.identity import Identity


class Below:
    """The transport below the layer. Each call of the test is a turn of the poller."""

    def __init__(self, peer: tuple[str, int] | None = ("192.0.2.1", 4711), scheduler: Scheduler | None = None) -> None:
        self.peer = peer
        self.scheduler = scheduler or Scheduler()
        self.owner: Any = SimpleNamespace(ref=None, scheduler=self.scheduler, call_at=self.scheduler.call_at)
        self.writes: list[bytes] = []
        self.calls: list[str] = []
        self.pending = 0
        self.identity: Identity | None = None
        #: What the layer passed on.
        self.got: list[Event] = []

    def put(self, layer: Layer) -> None:
        """Start a layer on top."""
        layer.start(self.got.append, self.owner)

    def receive(self, *events: Event) -> None:
        for event in events:
            with self.scheduler.turn:
                self.receiver(event)

    def turn(self) -> None:
        """A turn in which nothing comes; timers that are due fire."""
        with self.scheduler.turn:
            pass

    # What came out

    @property
    def data(self) -> bytes:
        return b"".join(event for event in self.got if isinstance(event, bytes))

    @property
    def ended(self) -> str | None:
        return next((event.error for event in self.got if isinstance(event, Ended)), None)

    @property
    def failed(self) -> Failed | None:
        return next((event for event in self.got if isinstance(event, Failed)), None)

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)

    def taken(self) -> bytes:
        """What was sent since the last call."""
        data = self.sent
        self.writes.clear()
        return data

    # The transport

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        del owner
        self.receiver = receiver

    def send(self, data: bytes) -> None:
        self.writes.append(data)

    def send_now(self, data: bytes) -> None:
        self.writes.append(data)

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def read_now(self) -> None:
        self.calls.append("read_now")

    def finish(self) -> None:
        self.calls.append("finish")

    def reset(self) -> None:
        self.calls.append("reset")

    def close(self) -> None:
        self.calls.append("close")
