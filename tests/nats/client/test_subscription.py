import pytest
import trio

from trunkline.nats.client.message import Message
from trunkline.nats.client.subscription import MAX_RUN, Subscription
from trunkline.nats.errors import ClientClosed
from trunkline.nats.protocol.operations import Deliver


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def slow(self, subscription: Subscription) -> None:
        self.told.append("slow")

    def unsubscribe(self, subscription: Subscription, after: int = 0) -> None:
        self.told.append(after)
        if not after:
            subscription.end()

    async def stop(self, subscription: Subscription) -> None:
        self.told.append("stop")
        subscription.put(wire(b"last"))

    def answer(self, subject: str, payload: bytes, *, headers: object = None, is_last: bool = True) -> None:
        self.told.append((subject, payload, is_last))


def wire(payload: bytes = b"") -> Deliver:
    return Deliver(b"a", b"1", b"r", b"", payload)


def subscription(owner: Owner, max_messages: int = 10, max_bytes: int = 100) -> Subscription:
    return Subscription(owner, "a", "", b"1", max_messages, max_bytes)


async def test_several_tasks_share_the_messages() -> None:
    some, found = subscription(Owner(), 100), list[Message]()

    async def take() -> None:
        async for message in some:
            found.append(message)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(30):
            some.put(wire(b"%d" % number))
        await trio.testing.wait_all_tasks_blocked()
        some.end()
    assert [message.payload for message in found] == [b"%d" % number for number in range(30)]


async def test_a_message_that_a_cancelled_task_did_not_get_is_there_for_another() -> None:
    some = subscription(Owner())
    with trio.move_on_after(0) as scope:
        await some.receive()
    assert scope.cancelled_caught
    inner, got = trio.CancelScope(), list[bytes]()

    async def late() -> None:
        with inner:
            got.append((await some.receive()).payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        await trio.testing.wait_all_tasks_blocked()
        some.put(wire(b"x"))
        inner.cancel()
    if not got:
        got.append((await some.receive()).payload)
    assert got == [b"x"]


async def test_other_tasks_have_their_turn() -> None:
    some, turns = subscription(Owner(), 10_000), list[int]()
    for _ in range(4 * MAX_RUN):
        some.put(wire())

    async def other() -> None:
        while True:
            turns.append(len(some))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(4 * MAX_RUN):
            await some.receive()
        nursery.cancel_scope.cancel()
    assert len(turns) >= 3


async def test_limits() -> None:
    owner = Owner()
    some = subscription(owner, 2, 100)
    for _ in range(4):
        some.put(wire())
    assert (len(some), some.dropped, some.received, owner.told) == (2, 2, 4, ["slow"])
    assert repr(some) == "<Subscription 'a', 2 messages wait>"
    await some.receive()
    some.put(wire())
    some.put(wire())
    assert owner.told == ["slow"]  # not before all of it was taken
    await some.receive()
    await some.receive()
    some.put(wire(bytes(60)))
    some.put(wire(bytes(41)))
    assert (len(some), some.dropped, owner.told) == (1, 4, ["slow", "slow"])
    some.put(wire(bytes(40)))
    assert len(some) == 2
    some = subscription(owner, 9, 100)
    for _ in range(3):
        for _ in range(4):
            some.put(Deliver(b"a", b"1", b"r", bytes(20), bytes(10)))
        assert len(some) == 3
        while len(some):
            await some.receive()


async def test_a_message_that_is_larger_than_all_may_be_waits_alone() -> None:
    """Otherwise what asks for it again would do so without end."""
    some = subscription(Owner())
    for _ in range(2):
        some.put(wire(bytes(101)))
    assert (len(some), some.dropped) == (1, 1)
    assert len((await some.receive()).payload) == 101


async def test_the_end() -> None:
    some = subscription(Owner())
    some.put(wire(b"x"))
    some.end()
    assert (await some.receive()).payload == b"x"
    with pytest.raises(trio.EndOfChannel):
        await some.receive()
    some = subscription(Owner())
    some.put(wire(b"x"))
    some.end(ClientClosed("why"))
    await some.receive()
    with pytest.raises(ClientClosed, match="why"):
        await some.receive()


async def test_draining() -> None:
    owner = Owner()
    some = subscription(owner)
    await some.drain()
    assert (owner.told, some.is_stopped, some.is_over) == (["stop", 0], True, True)
    assert [message.payload async for message in some] == [b"last"]
    await some.drain()
    assert owner.told == ["stop", 0]


async def test_what_another_connection_is_asked_for() -> None:
    """What is left; and nothing if it is being drained."""
    some = subscription(Owner())
    some.max_received = 3
    some.put(wire())
    assert list(some.again()) == [b"SUB a 1\r\n", b"UNSUB 1 2\r\n"]
    some.is_stopped = True
    assert list(some.again()) == []


async def test_the_last_answer_for_now() -> None:
    owner = Owner()
    some = subscription(owner)
    some.put(wire())
    some.put(wire())
    for _ in range(2):
        (await some.receive()).respond(b"x")
    assert owner.told == [("r", b"x", False), ("r", b"x", True)]


async def test_so_many() -> None:
    owner = Owner()
    with subscription(owner) as some:
        some.unsubscribe(after=2)
        some.max_received = 2
        some.put(wire())
        assert owner.told == [2]
        some.put(wire())
        assert owner.told == [2, 0]
    assert owner.told == [2, 0, 0]
