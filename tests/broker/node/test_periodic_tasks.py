import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.reconfigured import other
from tests.broker.room import room
from trunkline.broker.node import statistics


async def test_a_task_that_has_crashed_too_often_is_started_again_when_its_settings_change(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a fault")

    async with room(sys={"interval": 10}) as here:
        with monkeypatch.context() as broken:
            broken.setattr(statistics, "sys_topics", fails)
            await wait_all_tasks_blocked()
            await trio.sleep(11)
            assert [alarm.name for alarm in here.node.alarms.active] == ["sys.down"]
        await here.admin.reconfiguring.apply(other({"sys": {"interval": 20}}))
        assert here.node.alarms.active == []
        assert "sys" in here.node.supervisors.root
