"""`trunkline rr`, as a process, and a responder."""

from functools import partial

import pytest
import trio
from click.testing import CliRunner

from tests.management.client_commands.running import PATIENCE, command, run, start
from trunkline.client import Client, ConnectionSettings
from trunkline.management.cli import cli
from trunkline.testing import Broker


def rr(broker: Broker, *words: str) -> list[str]:
    return command("rr", "-p", str(broker.port), "-t", "ask", *words)


async def respond(broker: Broker, *, copies: int = 1, noise: bool = False, task_status: trio.TaskStatus[None]) -> None:
    async with (
        Client(ConnectionSettings.from_url(broker.url, client_id="responder")) as client,
        await client.subscribe("ask", qos=1) as requests,
    ):
        task_status.started()
        async for request in requests:
            where, correlation = (
                request.properties.get("response_topic", ""),
                request.properties.get("correlation_data", b""),
            )
            if noise:
                await client.publish(where, b"of another", properties={"correlation_data": b"other"})
            for number in range(copies):
                payload = b"%d: %s" % (number, request.payload)
                await client.publish(where, payload, properties={"correlation_data": correlation})


@pytest.mark.parametrize("words", [(), ("-e", "answers", "-q", "1")])
async def test_a_response(mqtt_broker: Broker, words: tuple[str, ...]) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(respond, mqtt_broker, noise=True))
        ended = await run(rr(mqtt_broker, "-m", "hello", *words))
        assert ended == (0, b"0: hello\n", "")
        nursery.cancel_scope.cancel()


async def test_several_responses(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(respond, mqtt_broker, copies=3))
        words = ("-s", "-C", "2", "-F", "%p %D", "-D", "publish", "correlation-data", "mine", "-e", "answers")
        ended = await run(rr(mqtt_broker, *words), stdin=b"hello")
        assert ended == (0, b"0: hello mine\n1: hello mine\n", "")
        nursery.cancel_scope.cancel()
    assert mqtt_broker.sessions == []


async def test_no_response(mqtt_broker: Broker) -> None:
    mqtt_broker.publish("answers", "of before", retain=True)
    ended = await run(rr(mqtt_broker, "-n", "-q", "1", "-W", "0.2", "-e", "answers", "-R"))
    assert ended == (27, b"", "trunkline: warning: nobody is subscribed to ask\n")


async def test_a_refused_request(mqtt_broker: Broker) -> None:
    mqtt_broker.faults.refuse_publish("NOT_AUTHORIZED", topic="ask")
    ended = await run(rr(mqtt_broker, "-n", "-q", "1"))
    assert ended.code == 5
    assert ended.err.startswith("trunkline: the server refused the message to ask: not authorized (0x87)")


@pytest.mark.parametrize("version", ["5", "311"])
async def test_a_responder_that_knows_nothing_of_correlation_data(mqtt_broker: Broker, version: str) -> None:
    async with trio.open_nursery() as nursery:
        with mqtt_broker.watch("ask") as asked:
            process = await start(nursery, rr(mqtt_broker, "-V", version, "-e", "answers", "-m", "x", "-v"))
            await asked.next(PATIENCE)
        mqtt_broker.publish("answers", "response")
        assert await process.end() == (0, b"answers response\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-m x", "there is no topic: -t"),
        ("-t t", "give one message: -m, -f, -s, -n\n"),
        ("-t t -m x -V 311", "does not say where responses go: -e"),
        ("-t t -m x -e a/#", "holds a wildcard"),
    ],
)
def test_usage(words: str, text: str) -> None:
    result = CliRunner().invoke(cli, ["rr", *words.split()])
    assert result.exit_code == 2
    assert text in result.stderr
