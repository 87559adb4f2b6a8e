"""The order of operations, what waits, and how much is done in a turn."""

from typing import TYPE_CHECKING, Any, cast

import trio

from trunkline.actors import Actor, system
from trunkline.broker.nats.dialogue import OPERATIONS_AT_ONCE, Dialogue
from trunkline.config.config import Config
from trunkline.mqtt.reasons import Reason
from trunkline.nats.protocol.operations import PING, PONG, FromClient, Publish, Subscribe

if TYPE_CHECKING:
    from collections.abc import Callable


class Settings:
    config = Config()


class Sent:
    pending = 7

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.data.append(data)


class Spoken(Actor[Any]):
    """A connection that notes what is asked of it."""

    def __init__(self) -> None:
        self.done: list[FromClient] = []
        self.events: list[object] = []
        self.sent = Sent()
        self.acts: Callable[[FromClient], object] = lambda _: None

    def init(self) -> None:
        self.dialogue = Dialogue(self, cast("Any", self.sent), cast("Any", Settings()))

    def handle(self, message: Any) -> None:
        if isinstance(message, list):
            self.dialogue.take(message)
        else:
            message.action()

    def pause(self, holder: object) -> None:
        self.events.append("pause")

    def resume(self, holder: object) -> None:
        self.events.append("resume")

    def operate(self, operation: FromClient) -> None:
        self.done.append(operation)
        self.acts(operation)

    def all_done(self) -> None:
        self.events.append("done")

    def cut_off(self) -> None:
        self.close("", Reason.QUOTA_EXCEEDED, "cut off")

    def close(self, farewell: str, reason: Reason, text: str) -> None:
        self.dialogue.is_over = True
        self.events.append((farewell, reason, text))


async def test_what_has_to_wait_keeps_back_what_is_behind_it() -> None:
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        first, second = Subscribe(b"a", b"", b"1"), Publish(b"a", b"", b"", b"x")
        line.acts = lambda one: line.dialogue.wait() if one is first else None
        ref.cast([PING, first, second])
        await trio.testing.wait_all_tasks_blocked()
        assert line.done == [PING, first]
        assert line.events == ["pause"]
        ref.cast([PONG])
        await trio.testing.wait_all_tasks_blocked()
        assert line.done == [PING, first]
        line.dialogue.soon(line.dialogue.proceed)
        await trio.testing.wait_all_tasks_blocked()
        assert line.done == [PING, first, second, PONG]
        assert line.events == ["pause", "pause", "resume", "done"]


async def test_so_many_are_handled_in_a_turn() -> None:
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        turns: list[int] = []

        class Other(Actor[str]):
            def handle(self, message: str) -> None:
                turns.append(len(line.done))

        other = actors.start(Other())
        line.acts = lambda _: other.cast("look") if len(line.done) == 1 else None
        ref.cast([PING] * (3 * OPERATIONS_AT_ONCE))
        await trio.testing.wait_all_tasks_blocked()
        assert len(line.done) == 3 * OPERATIONS_AT_ONCE
        assert turns == [OPERATIONS_AT_ONCE]


async def test_an_operation_is_put_back() -> None:
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        first, second = Subscribe(b"a", b"", b"1"), Subscribe(b"b", b"", b"2")
        line.acts = lambda one: line.dialogue.put_back(one) if len(line.done) == 1 else None
        ref.cast([first, second])
        await trio.testing.wait_all_tasks_blocked()
        assert line.done == [first, first, second]


async def test_nothing_is_handled_behind_the_end() -> None:
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        line.acts = lambda _: line.dialogue.end("so", Reason.PROTOCOL_ERROR, "why")
        ref.cast([PING, PONG])
        await trio.testing.wait_all_tasks_blocked()
        assert line.done == [PING]
        assert line.events == [("so", Reason.PROTOCOL_ERROR, "why")]


async def test_questions() -> None:
    line, answers = Spoken(), list[int]()
    async with system() as actors:
        ref = actors.start(line)

        async def at_once() -> int:
            return 1

        async def later() -> int:
            await trio.lowlevel.checkpoint()
            return 2

        line.acts = lambda one: line.dialogue.ask(
            at_once if one is PING else later, answers.append, in_task=one is not PING
        )
        ref.cast([PING, PONG, PING])
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [1, 2, 1]


async def test_a_question_without_an_answer_ends_it(autojump_clock: object) -> None:
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        line.acts = lambda _: line.dialogue.ask(trio.sleep_forever, lambda _: None, in_task=True)
        ref.cast([PING])
        await trio.sleep(1000)
        (event,) = line.events
        assert event == ("", Reason.IMPLEMENTATION_SPECIFIC_ERROR, "a hook has not answered within 120 s")


async def test_answers_leave_together() -> None:
    line = Spoken()
    async with system() as actors:
        actors.start(line)
        dialogue = line.dialogue
        assert dialogue.pending == 7
        dialogue.acknowledge()
        dialogue.is_verbose = False
        dialogue.acknowledge()
        dialogue.complain("no")
        dialogue.flush()
        dialogue.flush()
        assert line.sent.data == [b"+OK\r\n-ERR 'no'\r\n"]


async def test_what_follows_and_is_alike() -> None:
    """It counts as operations of the turn."""
    line = Spoken()
    async with system() as actors:
        ref = actors.start(line)
        payloads: list[list[bytes]] = []
        line.acts = lambda one: payloads.append(line.dialogue.alike(one, 3)) if isinstance(one, Publish) else None

        def pubs(*told: bytes, subject: bytes = b"a") -> list[FromClient]:
            return [Publish(subject, b"", b"", each) for each in told]

        others = [Publish(b"a", b"r", b"", b"4"), Publish(b"a", b"", b"NATS/1.0\r\n\r\n", b"5")]
        said = [*pubs(b"1", b"2", b"333"), PING, *pubs(b"1", b"4444"), *pubs(b"3", subject=b"b"), *pubs(b"1"), *others]
        ref.cast(said)
        await trio.testing.wait_all_tasks_blocked()
        assert payloads == [[b"2", b"333"], [], [], [], [], [], []]
        del payloads[:]
        line.done.clear()
        ref.cast(pubs(*[b"x"] * (2 * OPERATIONS_AT_ONCE + 1)))
        await trio.testing.wait_all_tasks_blocked()
        assert list(map(len, payloads)) == [OPERATIONS_AT_ONCE - 1, OPERATIONS_AT_ONCE - 1, 0]
