"""Buffers of messages and loops over them."""

import gc
import weakref
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trunkline.client.limits import MAX_BYTES, WaitingLimits
from trunkline.client.received import Origin, ReceivedMessage
from trunkline.client.receivers import MAX_RUN, OVERFULL, Receiver
from trunkline.mqtt.properties import NO_PROPERTIES, Properties


class Owner:
    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.woken = 0
        self.left: list[Receiver] = []
        self.later: list[ReceivedMessage] = []

    def has_room(self, receiver: Receiver) -> None:
        self.woken += 1

    def closed(self, receiver: Receiver) -> None:
        self.left.append(receiver)

    def acknowledge_later(self, messages: Sequence[ReceivedMessage]) -> None:
        self.later += messages

    def receiver(self, max_buffered: int = 10, max_bytes: int = MAX_BYTES, *, manual_ack: bool = False) -> Receiver:
        limits = WaitingLimits(buffered=max_buffered, buffered_bytes=max_bytes)
        return Receiver(["t"], manual_ack=manual_ack, limits=limits, owner=self)

    def messages(self, *numbers: int, qos: int = 1) -> list[ReceivedMessage]:
        acknowledge = self.acknowledged.append if qos else None
        return [
            ReceivedMessage("t", b"%d" % number, Origin(qos, False, False, NO_PROPERTIES), True, number, acknowledge)
            for number in numbers
        ]


async def test_a_message_is_acknowledged_when_the_loop_goes_on() -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0, 1, 2), 1)
    receiver.end()
    seen: list[list[int]] = []
    async for _ in receiver:
        seen.append([*owner.acknowledged])
    assert seen == [[], [0], [0, 1]]
    assert owner.acknowledged == [0, 1, 2]


@pytest.mark.parametrize("how", ["break", "exception", "cancellation", "end of its task"])
async def test_a_loop_that_is_left_leaves_its_message_for_later(how: str) -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0, 1), 1)

    async def loop() -> None:
        async for _ in receiver:
            if how == "exception":
                raise LookupError
            if how == "cancellation":
                scope.cancel()
                await trio.sleep_forever()
            break

    with suppress(LookupError), trio.CancelScope() as scope:
        if how == "end of its task":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop)
        else:
            await loop()
    assert owner.acknowledged == []
    assert [message.payload for message in owner.later] == [b"0"]
    receiver.close()
    assert owner.acknowledged == [0, 1]


async def test_a_loop_that_is_left_leaves_alone_what_is_acknowledged_by_hand() -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0, 1), 1)
    for number in range(2):
        async for message in receiver:
            message.auto_ack = False
            if number:
                message.ack()
            break
    receiver.close()
    assert owner.later == []
    assert owner.acknowledged == [1]


async def test_a_loop_within_a_loop_keeps_the_message_of_the_outer_one() -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0, 1, 2), 1)
    receiver.end()
    async for _ in receiver:
        assert [message.payload async for message in receiver] == [b"1", b"2"]
        assert owner.acknowledged == [1, 2]
    assert owner.acknowledged == [1, 2, 0]


async def test_closing_acknowledges_what_is_left() -> None:
    owner = Owner()
    async with owner.receiver() as receiver:
        receiver.put(owner.messages(0, 1, 2), 1)
        async for _ in receiver:
            break
    assert owner.acknowledged == [0, 1, 2]
    assert owner.left == [receiver]
    receiver.put(owner.messages(3), 1)
    assert owner.acknowledged == [0, 1, 2, 3]
    assert [message async for message in receiver] == []


async def test_a_cancelled_block_leaves_its_messages_for_later() -> None:
    owner = Owner()
    receiver = owner.receiver()
    with trio.CancelScope() as scope:
        async with receiver:
            receiver.put(owner.messages(0, 1), 1)
            async for _ in receiver:
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert owner.acknowledged == []
    assert [message.payload for message in owner.later] == [b"0", b"1"]
    assert owner.left == [receiver]


async def test_receive_takes_single_messages() -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0), 1)
    assert (await receiver.receive()).payload == b"0"
    assert owner.acknowledged == [0]
    receiver.end()
    with pytest.raises(trio.EndOfChannel):
        await receiver.receive()


async def test_a_loop_waits() -> None:
    owner = Owner()
    receiver = owner.receiver()
    seen: list[bytes] = []

    async def read() -> None:
        async for message in receiver:
            seen.append(message.payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for number in range(3):
            await wait_all_tasks_blocked()
            receiver.put(owner.messages(number), 1)
        await wait_all_tasks_blocked()
        assert seen == [b"0", b"1", b"2"]
        receiver.end()


async def test_a_loop_lets_others_run() -> None:
    owner = Owner()
    receiver = owner.receiver(10 * MAX_RUN)
    receiver.put(owner.messages(*range(3 * MAX_RUN), qos=0), 1)
    receiver.end()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        async for _ in receiver:
            pass
        nursery.cancel_scope.cancel()
    assert turns >= 3


async def test_a_loop_can_be_cancelled_although_it_never_waits() -> None:
    owner = Owner()
    receiver = owner.receiver()
    receiver.put(owner.messages(0), 1)
    with trio.CancelScope() as scope:
        scope.cancel()
        async for _ in receiver:
            pytest.fail("it went on")
    assert len(receiver) == 1


async def test_a_crowded_receiver_says_when_there_is_room() -> None:
    owner = Owner()
    receiver = owner.receiver(2)
    receiver.put(owner.messages(0), 1)
    assert not receiver.is_crowded
    receiver.put(owner.messages(1, 2), 1)
    assert receiver.is_crowded
    await receiver.receive()
    assert receiver.is_crowded
    assert owner.woken == 0
    await receiver.receive()
    assert not receiver.is_crowded
    assert owner.woken == 1


async def test_of_too_many_only_qos_0_is_dropped() -> None:
    owner = Owner()
    receiver = owner.receiver(2)
    receiver.put(owner.messages(*range(OVERFULL * 2), qos=0), 1)
    receiver.put(owner.messages(8, 9, qos=0) + owner.messages(10), 1)
    assert receiver.dropped == 2
    assert len(receiver) == OVERFULL * 2 + 1


def sized(size: int, qos: int = 0) -> ReceivedMessage:
    return ReceivedMessage("t", bytes(size - 1), Origin(qos, False, False, NO_PROPERTIES), True)


async def test_a_receiver_is_crowded_by_bytes_as_well() -> None:
    owner = Owner()
    receiver = owner.receiver(10, max_bytes=1000)
    receiver.put([sized(500), sized(100), sized(398)], 998)
    assert not receiver.is_crowded
    receiver.put([sized(500), sized(100)], 600)
    assert receiver.is_crowded
    for left in (4, 3):
        assert receiver.is_crowded
        await receiver.receive()
        assert len(receiver) == left
    assert not receiver.is_crowded
    assert owner.woken == 1
    receiver.put([sized(1)], 1)
    assert not receiver.is_crowded


async def test_who_polls_all_gets_as_many_again_as_the_limit_says() -> None:
    owner = Owner()
    receiver = owner.receiver(4, max_bytes=1000)
    receiver.put([sized(400) for _ in range(3)], 1200)
    assert receiver.is_crowded
    while receiver.poll() is not None:
        pass
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receiver.polled)
        await wait_all_tasks_blocked()
        assert owner.woken == 1
        receiver.put([sized(1) for _ in range(3)], 3)
    assert not receiver.is_crowded
    receiver.put([sized(1)], 1)
    assert receiver.is_crowded


async def test_bytes_that_are_gone_do_not_count() -> None:
    owner = Owner()
    receiver = owner.receiver(10, max_bytes=1000)
    for _ in range(100):
        receiver.put([sized(900)], 900)
        assert not receiver.is_crowded
        await receiver.receive()


async def test_of_too_many_bytes_only_qos_0_is_dropped() -> None:
    receiver = Owner().receiver(100, max_bytes=1000)
    receiver.put([sized(2000)], 2000)
    receiver.put([sized(1), sized(1, qos=1)], 10)
    assert (receiver.dropped, len(receiver)) == (1, 2)


def test_properties_and_topics_weigh_as_well() -> None:
    receiver = Owner().receiver(100, max_bytes=1000)
    properties: Properties = {"user_property": [("a" * 500, "b" * 500)]}
    receiver.put([ReceivedMessage("t", b"", Origin(0, False, False, properties), True)], 1000)
    assert receiver.is_crowded
    receiver = Owner().receiver(100, max_bytes=1000)
    receiver.put([ReceivedMessage("t" * 1000, b"", Origin(0, False, False, NO_PROPERTIES), True)], 1000)
    assert receiver.is_crowded


async def test_after_messages_were_withdrawn_the_limits_are_as_before() -> None:
    owner = Owner()
    receiver = owner.receiver(10, max_bytes=1000)
    receiver.put([sized(100, qos=1)] * 5 + [sized(900)], 1400)
    assert receiver.is_crowded
    receiver.withdraw()
    receiver.put([sized(1)] * 5, 5)
    assert not receiver.is_crowded


async def test_a_long_message_that_was_withdrawn_crowds_no_longer() -> None:
    receiver = Owner().receiver(10, max_bytes=1000)
    receiver.put([*[sized(1) for _ in range(3)], sized(2000, qos=1)], 2003)
    assert receiver.is_crowded
    receiver.withdraw()
    assert len(receiver) == 3
    assert not receiver.is_crowded


async def test_what_loops_have_left_is_forgotten_when_it_is_acknowledged() -> None:
    owner = Owner()
    receiver = owner.receiver()
    found: list[weakref.ref[ReceivedMessage]] = []

    class Referable(ReceivedMessage):
        pass

    for number in range(20):
        origin = Origin(1, False, False, NO_PROPERTIES)
        receiver.put([Referable("t", b"", origin, True, number, owner.acknowledged.append)], 1)
        async for message in receiver:
            found.append(weakref.ref(message))
            break
        (message,) = owner.later
        message.ack()
        owner.later.clear()
    del message
    gc.collect()
    assert sum(each() is not None for each in found) <= 1
