"""Which of the stored sessions come back, and where their messages wait."""

from unittest.mock import Mock

import pytest

from tests.broker.disk import Disk
from tests.broker.session.test_cursor import messages, nothing_more, publish, settled
from tests.conformance import raw
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.session.durable import SESSIONS
from trunkline.broker.session.life import SessionLife
from trunkline.broker.session.stored_queue import PRIVATE
from trunkline.store.engine import number_of, rows


async def test_a_session_that_has_ended_does_not_come_back_and_its_group_gets_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The power fails when it is ended and has handed nothing over yet."""
    disk = Disk()
    async with disk.broker() as life:
        ended, _ = await life.stay("ended")
        await ended.subscribe(("$share/g/t", 1), ("own", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        for number in range(3):
            await publisher.publish("t", b"%d" % number, qos=1)
        await publisher.publish("own", b"own", qos=1)
        other, _ = await life.stay("other")
        await other.subscribe(("$share/g/t", 1))
        with monkeypatch.context() as patched:
            patched.setattr(SessionLife, "_remove_routes", Mock())
            successor = await life.wire()
            await successor.connect("ended")
        assert len(list(rows(disk.engine, SESSIONS))) == 2
        life.cut()
    for stops in (False, True):
        async with disk.broker(stops=stops) as life:
            other, _ = await life.stay("other")
            got = sorted([(await other.expect_type(raw.PUBLISH)).payload for _ in range(3)])
            assert got == [b"0", b"1", b"2"]
            await other.expect_nothing()
            assert life.node.sessions.get("ended") is None
            publisher = await life.wire()
            assert not (await publisher.connect("ended", clean=False)).session_present
    assert len(list(rows(disk.engine, SESSIONS))) == 1


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_used", [True, False])
async def test_what_comes_after_a_start_waits_where_the_settings_say(is_there: bool, is_used: bool) -> None:
    """And what waits in backlogs already comes in any case, and first."""
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("a")
        await wire.subscribe(("t", 1))
        if not is_there:
            await wire.abort()
            await settled(life)
            await publish(life, "t", b"before")
        await life.rests()
    before = [] if is_there else [b"before"]
    assert disk.engine.count(ENTRIES) == len(before)
    async with disk.broker(session={"overflow": "drop_oldest" if is_used else "drop_new"}) as life:
        await publish(life, "t", b"after")
        await life.rests()
        of_filters = [key for key, _ in disk.engine.scan(ENTRIES) if number_of(key) < PRIVATE]
        assert len(of_filters) == (0 if is_there and not is_used else len(before) + 1)
        wire, _ = await life.stay("a")
        assert await messages(wire, len(before) + 1) == [*before, b"after"]
        await nothing_more(wire)
