import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from worker import Handler, Worker

from trunkline.testing import Broker


async def double(job: object) -> object:
    assert isinstance(job, int)
    return 2 * job


@asynccontextmanager
async def working(broker: Broker, name: str = "w", handler: Handler = double, **settings: float) -> AsyncIterator[None]:
    worker = Worker(broker.host, broker.port, name, handler, **settings)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        await worker.ready.wait()
    try:
        yield
    finally:
        while not task.done():  # Python 3.11 may lose a cancellation that comes when what is waited for has just come
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
        assert task.cancelled()


def ask(broker: Broker, job: str, number: int = 1) -> None:
    """The other side, in the broker's own name."""
    properties = {"response_topic": f"answers/{number}", "correlation_data": b"%d" % number}
    broker.publish(f"jobs/{number}", job, qos=1, properties=properties)


async def test_a_job_is_answered(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker):
        ask(mqtt_broker, "21")
        answer = await mqtt_broker.wait_for("answers/1", payload={"result": 42})
        assert answer.properties["correlation_data"] == b"1"
        (job,) = mqtt_broker.assert_delivered("jobs/1", to="w")
        assert job.publisher == ""


@pytest.mark.parametrize(("job", "error"), [("x", "JSONDecodeError"), ('"x"', "AssertionError")])
async def test_a_job_that_fails_is_answered_too(mqtt_broker: Broker, job: str, error: str) -> None:
    async with working(mqtt_broker):
        ask(mqtt_broker, job)
        await mqtt_broker.wait_for("answers/1", lambda message: error.encode() in message.payload)
        ask(mqtt_broker, "1", number=2)
        await mqtt_broker.wait_for("answers/2", payload={"result": 2})


async def test_two_workers_share_the_jobs(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker, "one"), working(mqtt_broker, "two"):
        for number in range(20):
            ask(mqtt_broker, "1", number)
        for number in range(20):
            await mqtt_broker.wait_for(f"answers/{number}")
        jobs = mqtt_broker.assert_published("jobs/#", times=20)
        shares = {name: sum(job.delivered_to == (name,) for job in jobs) for name in ("one", "two")}
        assert sum(shares.values()) == 20
        assert min(shares.values()) > 0


async def test_no_more_jobs_at_once_than_there_is_room_for(mqtt_broker: Broker) -> None:
    at_work, most, go_on = 0, 0, asyncio.Event()

    async def slow(job: object) -> object:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await go_on.wait()
        at_work -= 1
        return job

    async with working(mqtt_broker, handler=slow, at_once=2):
        for number in range(5):
            ask(mqtt_broker, "1", number)
        await mqtt_broker.wait_until(lambda: at_work == 2)
        go_on.set()
        for number in range(5):
            await mqtt_broker.wait_for(f"answers/{number}")
        assert most == 2


async def test_it_comes_back_when_it_is_thrown_out(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker, pause=0.01):
        before = mqtt_broker.mark()
        mqtt_broker.kick("w")
        await mqtt_broker.wait_for("workers/w", payload="ready", after=before)
        ask(mqtt_broker, "21")
        await mqtt_broker.wait_for("answers/1", payload={"result": 42})


async def test_it_comes_back_when_the_broker_does(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker, pause=0.01):
        before = mqtt_broker.mark()
        await mqtt_broker.restart(keep_sessions=False, keep_retained=False)
        await mqtt_broker.wait_for("workers/w", payload="ready", after=before)
        ask(mqtt_broker, "21")
        await mqtt_broker.wait_for("answers/1", payload={"result": 42})


async def test_it_says_when_it_leaves(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker):
        pass
    await mqtt_broker.wait_until(lambda: not mqtt_broker.clients)
    assert [row.payload for row in mqtt_broker.retained] == [b"gone"]


async def test_one_that_has_died_is_lost(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker):
        before = mqtt_broker.mark()
        await mqtt_broker.clock.advance(91)  # nothing was heard of it for one and a half keep-alives
        await mqtt_broker.wait_for("workers/w", payload="lost", after=before)


async def test_an_answer_that_is_not_acknowledged_comes_again(mqtt_broker: Broker) -> None:
    async with working(mqtt_broker, pause=0.01):
        fault = mqtt_broker.faults.cut(before="PUBACK", direction="to", client="w")
        ask(mqtt_broker, "21")
        await mqtt_broker.wait_for("answers/1", payload={"result": 42})
        await mqtt_broker.wait_until(lambda: fault.hits == 1)
