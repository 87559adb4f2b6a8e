"""`trunkline sub`, as a process."""

import json
import os
import pty
import shutil
import signal
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from tests.management.client_commands.running import PATIENCE, Running, command, environment, run, start
from trunkline.management.cli import cli
from trunkline.testing import Broker

SUBSCRIBED = "subscribed to"


def sub(broker: Broker, *words: str) -> list[str]:
    return command("sub", "-p", str(broker.port), *words)


def retained(broker: Broker, **payloads: str) -> None:
    for topic, payload in payloads.items():
        broker.publish(topic, payload, qos=1, retain=True)


async def test_messages_are_printed_as_they_come(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a/#", "-t", "b", "-q", "1", "-v", "-d", "-C", "3"))
        await process.until("subscribed to b at QoS 1")
        mqtt_broker.publish("a/1", "one", qos=1)
        await process.until_output(b"a/1 one\n")  # although its output is a pipe
        mqtt_broker.publish("b", b"\xfftwo\nlines", qos=0)
        mqtt_broker.publish("c", "none")
        mqtt_broker.publish("a/2", "", qos=2)
        mqtt_broker.publish("a/3", "beyond -C")
        ended = await process.end()
    assert (ended.code, ended.out) == (0, b"a/1 one\nb \xfftwo\nlines\na/2 \n")


async def test_without_line_breaks(mqtt_broker: Broker) -> None:
    retained(mqtt_broker, a="\0one\n", b="two")
    ended = await run(sub(mqtt_broker, "-t", "+", "-N", "-C", "2"))
    assert ended.out in (b"\0one\ntwo", b"two\0one\n")


async def test_lines_of_json(mqtt_broker: Broker) -> None:
    retained(mqtt_broker, a='{"x": 1}')
    ended = await run(sub(mqtt_broker, "-t", "a", "--json", "-C", "1"))
    found: dict[str, Any] = json.loads(ended.out)
    assert (found["topic"], found["retain"], found["payload"]) == ("a", 1, {"x": 1})


async def test_which_messages_are_printed(mqtt_broker: Broker) -> None:
    retained(mqtt_broker, a="1", b="2")
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "+", "-R", "-T", "c", "-v", "-d", "-C", "1"))
        await process.until(SUBSCRIBED)
        mqtt_broker.publish("c", "filtered out")
        mqtt_broker.publish("a", "fresh")
        assert (await process.end()).out == b"a fresh\n"


async def test_retained_messages_are_removed(mqtt_broker: Broker) -> None:
    retained(mqtt_broker, a="1", b="2", c="3")
    async with trio.open_nursery() as nursery:
        process = await start(
            nursery, sub(mqtt_broker, "-t", "+", "-T", "b", "--remove-retained", "--retained-only", "-v", "-d")
        )
        await process.until_output(b"a 1\n")
        await mqtt_broker.wait_until(lambda: [row.topic for row in mqtt_broker.retained] == ["b"], PATIENCE)
        mqtt_broker.publish("d", "fresh")
        ended = await process.end()
    assert (ended.code, sorted(ended.out.splitlines())) == (0, [b"a 1", b"c 3"])


async def test_a_time_limit(mqtt_broker: Broker) -> None:
    retained(mqtt_broker, a="1")
    ended = await run(sub(mqtt_broker, "-t", "a", "-W", "0.3"))
    assert (ended.code, ended.out, ended.err) == (27, b"1\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_disconnects(mqtt_broker: Broker, number: signal.Signals) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-i", "me", "-d", "--will-topic", "will"))
        await process.until(SUBSCRIBED)
        process.process.send_signal(number)
        ended = await process.end()
    assert ended.code == -number  # 130 and 143 in a shell
    assert "Traceback" not in ended.err
    assert mqtt_broker.sessions == []
    mqtt_broker.assert_not_published("will")


async def test_a_reader_that_goes_ends_it_quietly(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-d"))
        await process.until(SUBSCRIBED)
        assert process.process.stdout is not None
        await process.process.stdout.aclose()
        mqtt_broker.publish("a", "1")
        ended = await process.end()
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith("trunkline: subscribed")
    assert mqtt_broker.sessions == []


async def test_a_reader_that_stops_does_not_stop_the_client(mqtt_broker: Broker) -> None:
    """Its output is full, and still it answers."""
    async with trio.open_nursery() as nursery:
        words = ("-t", "a", "-q", "1", "-d", "-k", "1", "-D", "connect", "receive-maximum", "10", "-i", "me")
        process = await start(nursery, sub(mqtt_broker, *words))
        await process.until(SUBSCRIBED)
        for _ in range(20):
            mqtt_broker.publish("a", bytes(65_536), qos=1)
        pings: list[object] = []
        mqtt_broker.faults.drop("PINGREQ", where=lambda packet: bool(pings.append(packet))).optional()
        await mqtt_broker.wait_until(lambda: pings, PATIENCE)
        process.process.terminate()
        assert (await process.end()).code == -signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "shown"),
    [((), b"\\x1b[31mred\\x1b[0m\r\nline\r\n"), (("--raw",), b"\x1b[31mred\x1b[0m\r\nline\r\n")],
)
async def test_a_terminal_is_safe_from_payloads(mqtt_broker: Broker, words: tuple[str, ...], shown: bytes) -> None:
    retained(mqtt_broker, a="\x1b[31mred\x1b[0m\nline")
    read, write = pty.openpty()
    await trio.run_process(sub(mqtt_broker, "-t", "a", "-C", "1", *words), stdout=write, env=environment())
    os.close(write)
    assert os.read(read, 1000) == shown
    os.close(read)


async def test_a_session_is_set_up_resumed_and_left(mqtt_broker: Broker) -> None:
    words = ("-c", "-i", "me", "-q", "1", "-v")
    assert (await run(sub(mqtt_broker, *words, "-t", "a/#", "-t", "b", "-E"))).code == 0
    for number in range(600):
        mqtt_broker.publish("a/x", b"%d" % number, qos=1)
    mqtt_broker.publish("b", "of another filter", qos=1)
    ended = await run(sub(mqtt_broker, *words, "-t", "a/#", "-U", "b", "-C", "601"))
    assert ended.out.splitlines() == [*(b"a/x %d" % number for number in range(600)), b"b of another filter"]
    assert [row.filter for row in mqtt_broker.subscriptions] == ["a/#"]
    mqtt_broker.publish("a/x", "once more", qos=1)
    assert (await run(sub(mqtt_broker, *words, "-C", "1"))).out == b"a/x once more\n"  # without subscribing
    (session,) = mqtt_broker.sessions
    assert session.client_id == "me"


async def lose(process: Running, broker: Broker, *, keep_sessions: bool) -> None:
    await process.until(SUBSCRIBED)
    broker.publish("a", "1")
    await process.until_output(b"1\n")
    await broker.restart(keep_sessions=keep_sessions)


@pytest.mark.parametrize("words", [(), ("-V", "311", "-c", "-i", "me")])
async def test_a_lost_connection_is_made_anew(mqtt_broker: Broker, words: tuple[str, ...]) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-q", "1", "-d", "-C", "2", *words))
        await lose(process, mqtt_broker, keep_sessions=True)
        await process.until("again")
        mqtt_broker.publish("a", "2", qos=1)
        ended = await process.end()
    assert (ended.code, ended.out) == (0, b"1\n2\n")
    assert "; connecting again\n" in ended.err
    assert f"warning: connected to mqtt://localhost:{mqtt_broker.port} again\n" in ended.err


async def test_a_lost_session_ends_it(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-q", "1", "-d"))
        await lose(process, mqtt_broker, keep_sessions=False)
        ended = await process.end()
    assert (ended.code, ended.out) == (6, b"1\n")
    assert ended.err.splitlines()[-1].startswith("trunkline: the server has lost the session")


@pytest.mark.parametrize("words", [(), ("-V", "311")])
async def test_a_lost_session_is_replaced_when_asked(mqtt_broker: Broker, words: tuple[str, ...]) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-q", "1", "-d", "-C", "2", "--reconnect", *words))
        await lose(process, mqtt_broker, keep_sessions=False)
        await process.until("; subscribing again")
        await process.until(SUBSCRIBED)
        await mqtt_broker.wait_for_subscription("a", timeout=PATIENCE)
        mqtt_broker.publish("a", "2", qos=1)
        ended = await process.end()
    assert (ended.code, ended.out) == (0, b"1\n2\n")


async def test_a_lost_connection_of_3_ends_it_quietly_when_asked(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-q", "1", "-V", "311", "--quiet", "-d"))
        await lose(process, mqtt_broker, keep_sessions=True)
        ended = await process.end()
    assert ended.code == 6
    assert ended.err.splitlines()[-1].startswith("trunkline: subscribed")


async def test_a_refused_subscription(mqtt_broker: Broker) -> None:
    mqtt_broker.faults.refuse_subscribe("NOT_AUTHORIZED", filter="secret")
    ended = await run(sub(mqtt_broker, "-t", "open", "-t", "secret"))
    assert (ended.code, ended.out) == (5, b"")
    text = "not authorized (0x87), refused by a fault of the test"
    assert ended.err == f"trunkline: the server refused the subscription to secret: {text}\n"


async def test_a_takeover_ends_it(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-i", "me", "-d"))
        await process.until(SUBSCRIBED)
        assert (await run(sub(mqtt_broker, "-t", "a", "-i", "me", "-E"))).code == 0
        ended = await process.end()
    assert ended.code == 6
    assert "session taken over" in ended.err


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs mosquitto_pub (Debian: mosquitto-clients)")
async def test_from_mosquitto_pub(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, sub(mqtt_broker, "-t", "a", "-q", "2", "-d", "-C", "3", "-F", "%q %C %p"))
        await process.until(SUBSCRIBED)
        base = [
            "mosquitto_pub",
            "-p",
            str(mqtt_broker.port),
            "-V",
            "5",
            "-t",
            "a",
            "-D",
            "publish",
            "content-type",
            "x",
        ]
        assert (await run([*base, "-q", "2", "-l"], stdin=b"one\n\nthree")).code == 0
        assert (await process.end()).out == b"2 x one\n2 x \n2 x three\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "nothing to subscribe: -t"),
        ("-t a/#/b", "not alone at the end"),
        ("-t a -F %k", "Invalid value for -F: %k"),
        ("-t a --json -F %p", "-F and --json exclude each other"),
        ("-t a -R --retained-only", "exclude each other"),
        ("-t a -C 0", "'-C'"),
        ("-t a -W soon", "'-W'"),
        ("-L mqtt://h/a/#/b", "not alone at the end"),
    ],
)
def test_usage(words: str, text: str) -> None:
    result = CliRunner().invoke(cli, ["sub", *words.split()])
    assert result.exit_code == 2
    assert text in result.stderr
