from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.alarms import HISTORY, RETAINED_FULL, SESSIONS_FULL, Alarms
from trunkline.hooks import Hooks
from trunkline.hooks.alarm import Alarm


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_alarm_lasts_from_its_activation_to_its_end() -> None:
    hooks, clock = Hooks(), Clock()
    alarms = Alarms(hooks, clock)
    told: list[tuple[str, Alarm]] = []
    hooks.on("alarm.activated")(lambda alarm: told.append(("on", alarm)))
    hooks.on("alarm.deactivated")(lambda alarm: told.append(("off", alarm)))
    alarms.activate("hot", "90 degrees")
    clock.now = 110.0
    alarms.activate("hot", "95 degrees")
    assert alarms.active == [Alarm("hot", "95 degrees", 100.0)]
    alarms.deactivate("hot")
    alarms.deactivate("hot")
    assert alarms.active == []
    assert list(alarms.history) == [Alarm("hot", "95 degrees", 100.0, 110.0)]
    assert told == [("on", Alarm("hot", "90 degrees", 100.0)), ("off", Alarm("hot", "95 degrees", 100.0, 110.0))]


def test_the_history_is_bounded() -> None:
    alarms = Alarms(Hooks(), Clock())
    for number in range(HISTORY + 5):
        alarms.activate(str(number), "")
        alarms.deactivate(str(number))
    assert [alarm.name for alarm in alarms.history] == [str(number) for number in range(5, HISTORY + 5)]


async def test_a_full_store_of_retained_messages_raises_one_until_there_is_room() -> None:
    async with testing.broker(retained={"max_messages": 1}) as b:
        b.publish("a", b"x", retain=True)
        assert b.node.alarms.active == []
        b.publish("b", b"x", retain=True)
        (alarm,) = b.node.alarms.active
        assert alarm.name == RETAINED_FULL
        assert alarm.text.startswith("1 retained message of ")
        assert "retained.max_messages" in alarm.text
        b.publish("a", b"", retain=True)
        assert b.node.alarms.active == []


async def test_no_room_for_another_session_raises_one_until_there_is() -> None:
    async with testing.broker(limits={"max_sessions": 1}) as b:
        first, second = Wire(b.connect()), Wire(b.connect())
        await first.connect("first")
        assert b.node.alarms.active == []
        await second.send(raw.connect("second"))
        assert (await second.expect_type(raw.CONNACK)).reason == 0x97
        assert [alarm.name for alarm in b.node.alarms.active] == [SESSIONS_FULL]
        await first.disconnect()
        third = Wire(b.connect())
        await third.connect("third")
        assert b.node.alarms.active == []
        for wire in (first, second, third):
            await wire.abort()
