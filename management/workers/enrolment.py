"""What a worker has of its supervisor: its place, listening sockets, and somebody to tell how it is."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from trunkline.broker.net.listening_sockets import BoundSocket, SocketsWanted
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.place import ShardPlace
from trunkline.broker.shards.process_links import ProcessLinks
from trunkline.config.store_place import shard_path, store_path
from trunkline.config.units import parse_mark
from trunkline.management.control_place import SOCKET
from trunkline.management.workers.channel import ChannelClosed, WorkerChannel
from trunkline.management.workers.messages import (
    AlarmIs,
    Alive,
    AllQuiet,
    CannotStart,
    Quiet,
    Ready,
    Reload,
    Reloaded,
    SocketsAre,
    SocketsClosed,
    WantSockets,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.net.listening_sockets import SocketSettings
    from trunkline.config.config import Config
    from trunkline.management.workers.messages import Message

#: Seconds that the supervisor has to say who this is.
WELCOME_TIME: Final = 30.0
#: Seconds to wait for the other workers at the end.
QUIET_TIME: Final = 10.0
#: Signs of life in the time within which there has to be one.
SIGNS: Final = 4
#: Characters of the reasons why it cannot start.
MAX_PROBLEMS: Final = 32_768
_PR_SET_PDEATHSIG: Final = 1


class Enrolment:
    def __init__(self, channel: WorkerChannel, welcome: Welcome) -> None:
        self._channel = channel
        self._welcome = welcome
        self.number = welcome.number
        self._requests: dict[int, _Answer] = {}
        self._last_request = 0
        self._all_quiet = trio.Event()
        self._is_ready = False
        #: It was asked to read its configuration again before it was ready.
        self._reload_due = False
        self._ask_to_reload: Callable[[], None] = lambda: None
        self._alarms: Alarms | None = None
        #: Those that were raised before there is a broker.
        self._raised: dict[str, str] = {}

    @classmethod
    def join(cls, descriptor: int) -> Enrolment:
        """
        Raises:
            OSError: there is no supervisor there.
        """
        channel = WorkerChannel(socket.socket(fileno=descriptor))
        os.set_inheritable(descriptor, False)
        _end_with_parent()
        try:
            welcome = channel.first(WELCOME_TIME)
        except ChannelClosed as error:
            channel.close()
            raise OSError(f"the supervisor is gone: {error}") from error
        assert isinstance(welcome, Welcome)
        return cls(channel, welcome)

    def configured(self, config: Config) -> Config:
        """The settings of this worker: it has a store and a control socket of its own, and its part of the disk, of
        the machine's memory."""
        store, control, overload, workers = config.store, config.control, config.overload, self._welcome.workers
        if config.durability(standalone=True) != "memory":
            path = shard_path(store_path(store, config.node), self.number)
            # 0 is no limit
            store = store.model_copy(update={"path": path, "max_size": -(-store.max_size // workers)})
        marks = {name: _part(getattr(overload, name), workers) for name in ("memory_high", "memory_low")}
        if control.enabled is not False:
            control = control.model_copy(
                update={"path": self._folder / f"{self.number}{SOCKET}", "transport": "unix"},
            )
        overload = overload.model_copy(update=marks)
        return config.model_copy(update={"store": store, "control": control, "overload": overload})

    @property
    def place(self) -> ShardPlace:
        welcome = self._welcome
        links = ProcessLinks(self._folder, Homes(welcome.number, dealt(welcome.workers)))
        return ShardPlace(
            welcome.number,
            welcome.workers,
            welcome.term,
            time.monotonic() - trio.current_time(),  # all processes of a machine have the former
            links.join,
            links.hand_over,
            self._open_sockets,
            self._until_all_quiet,
        )

    @property
    def _folder(self) -> Path:
        return Path(self._welcome.folder)

    # What the supervisor says

    async def run(self, reload: Callable[[], None], gone: Callable[[], None]) -> None:
        """Hear it. `reload` is called when the configuration is to be read again, `gone` when there is no supervisor
        any more."""
        self._ask_to_reload = reload
        while (received := await self._channel.receive()) is not None:
            self._heard(*received)
        for answer in self._requests.values():
            answer.come.set()
        self._requests.clear()
        self._all_quiet.set()
        gone()

    def _heard(self, message: Message, descriptors: list[int]) -> None:
        match message:
            case Reload():
                if self._is_ready:
                    self._ask_to_reload()
                else:
                    self._reload_due = True
            case AllQuiet():
                self._all_quiet.set()
            case SocketsAre(request):
                answer = self._requests.pop(request, None)
                if answer is None:  # who has asked was cancelled
                    for descriptor in descriptors:
                        os.close(descriptor)
                else:
                    answer.message, answer.descriptors = message, descriptors
                    answer.come.set()
            case AlarmIs(name, text):
                if self._alarms is None:
                    self._raised[name] = text
                else:
                    _follow(self._alarms, name, text)
            case _:
                raise ValueError(f"a supervisor does not say {message!r}")

    # Listening sockets

    async def _open_sockets(self, settings: SocketSettings) -> list[BoundSocket]:
        self._last_request += 1
        number, answer = self._last_request, _Answer()
        self._requests[number] = answer
        self._say(WantSockets(number, SocketsWanted.of(settings)))
        try:
            await answer.come.wait()
        finally:
            self._requests.pop(number, None)
        if answer.message is None:
            raise OSError("there is no supervisor any more")
        if answer.message.errno:
            raise OSError(answer.message.errno, answer.message.error)
        found = [socket.socket(fileno=descriptor) for descriptor in answer.descriptors]
        left = len(found)

        def closed() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._say(SocketsClosed(number))

        try:
            for each in found:
                each.setblocking(False)
                each.listen(settings.backlog)
        except OSError:
            for each in found:
                each.close()
            self._say(SocketsClosed(number))
            raise
        return [BoundSocket(each, when_closed=closed) for each in found]

    # What this worker says

    def _say(self, message: Message) -> None:
        with suppress(ChannelClosed):  # `run` finds that out
            self._channel.send(message)

    def ready(self) -> None:
        self._is_ready = True
        self._say(Ready())
        if self._reload_due:
            self._ask_to_reload()

    def reloading(self) -> None:
        """It knows."""

    def reloaded(self) -> None:
        self._say(Reloaded())

    def stopping(self) -> None:
        """It knows."""

    async def show_life(self) -> None:
        """The event loop runs it, so a loop that is stuck shows none."""
        within = self._welcome.sign_of_life
        while within:
            self._say(Alive())
            await trio.sleep(within / SIGNS)

    def follow_alarms(self, alarms: Alarms) -> None:
        """Those of the node as a whole are this broker's, too."""
        self._alarms = alarms
        for name, text in self._raised.items():
            _follow(alarms, name, text)

    async def _until_all_quiet(self) -> None:
        self._say(Quiet())
        with trio.move_on_after(QUIET_TIME):
            await self._all_quiet.wait()

    def cannot_start(self, problems: Sequence[object], code: int) -> NoReturn:
        """End the process: the supervisor says why."""
        texts, left = list[str](), MAX_PROBLEMS
        for problem in map(str, problems):
            left -= len(problem)
            if left < 0:
                break
            texts.append(problem)
        self._say(CannotStart(texts or [str(problems[0])[:MAX_PROBLEMS]], code))
        self._channel.close()
        sys.exit(code)


class _Answer:
    def __init__(self) -> None:
        self.come = trio.Event()
        self.message: SocketsAre | None = None
        self.descriptors: list[int] = []


def _part(text: str, workers: int) -> str:
    """Of a mark: a share of what the machine has. Bytes are those of a process already."""
    mark = parse_mark(text)
    return f"{mark.amount * 100 / workers:g}%" if mark.is_share else text


def _follow(alarms: Alarms, name: str, text: str) -> None:
    if text:
        alarms.activate(name, text)
    else:
        alarms.deactivate(name)


def _end_with_parent() -> None:
    """Where the system offers it, for a worker whose event loop does not see that its channel is closed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
