"""`trunkline pub`, as a process."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from tests.management.client_commands.running import PATIENCE, command, run, start
from trunkline.hooks import ClientInfo
from trunkline.management.cli import cli
from trunkline.testing import Broker


def pub(broker: Broker, *words: str) -> list[str]:
    return command("pub", "-p", str(broker.port), "-t", "t", *words)


def payloads(broker: Broker) -> list[bytes]:
    return [message.payload for message in broker.messages]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message(mqtt_broker: Broker, qos: int) -> None:
    words = [
        "-m",
        "hellö",
        "-q",
        str(qos),
        "-r",
        "-D",
        "publish",
        "content-type",
        "x",
        "-D",
        "publish",
        "user-property",
    ]
    ended = await run(pub(mqtt_broker, *words, "a", "-b"))
    assert ended == (0, b"", "")
    (message,) = mqtt_broker.assert_published("t", payload="hellö")
    assert (message.qos, message.retain) == (qos, True)
    assert message.properties == {"content_type": "x", "user_property": [("a", "-b")]}
    assert mqtt_broker.sessions == []


@pytest.mark.parametrize(
    ("words", "survives"),
    [
        ("-m x", False),
        ("-m x --repeat 5", False),
        ("-m x -q 0 -x 60", True),
        ("-m x -q 1", True),
        ("-l", True),
        ("-m x --repeat 2 --repeat-delay 1ms", True),
    ],
)
async def test_a_session_is_asked_for_only_where_one_can_be_resumed(
    mqtt_broker: Broker, words: str, survives: bool
) -> None:
    """A server whose store is full makes none."""
    expiries: list[float] = []

    def connected(client: ClientInfo) -> None:
        session = mqtt_broker.node.clients.get(client.client_id)
        assert session is not None
        expiries.append(session.expiry_interval)

    mqtt_broker.hooks.add("client.connected", connected)
    assert (await run(pub(mqtt_broker, *words.split()), stdin=b"line")).code == 0
    assert [expiry > 0 for expiry in expiries] == [survives]


async def test_where_a_payload_comes_from(mqtt_broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\0file\n")
    for words, stdin in ((["-f", str(file)], b""), (["-s"], b"all\nof it\n"), (["-n"], b""), (["-m", ""], b"")):
        assert (await run(pub(mqtt_broker, *words), stdin=stdin)).code == 0
    assert payloads(mqtt_broker) == [b"\0file\n", b"all\nof it\n", b"", b""]
    ended = await run(pub(mqtt_broker, "-f", str(tmp_path / "none")))
    assert (ended.code, ended.err) == (1, f"trunkline: {tmp_path}/none: No such file or directory\n")


async def test_lines_are_published_as_they_come(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, pub(mqtt_broker, "-l", "-q", "1"))
        assert process.process.stdin is not None
        with mqtt_broker.watch("t") as watch:
            await process.process.stdin.send_all(b"one\ntw")
            assert (await watch.next(PATIENCE)).payload == b"one"
            await process.process.stdin.send_all(b"o\n\nlast")
            assert (await watch.next(PATIENCE)).payload == b"two"
            await process.process.stdin.aclose()
        assert (await process.end()).code == 0
    assert payloads(mqtt_broker) == [b"one", b"two", b"", b"last"]


@pytest.mark.mqtt_broker(history=6000)
async def test_many_lines_survive_a_lost_connection(mqtt_broker: Broker) -> None:
    """None is lost or doubled."""
    lines = [b"%d" % number for number in range(5_000)]
    mqtt_broker.faults.cut(before="PUBCOMP", times=1)
    ended = await run(pub(mqtt_broker, "-l", "-q", "2"), stdin=b"\n".join(lines))
    assert ended.code == 0
    assert "connecting again" in ended.err
    assert payloads(mqtt_broker) == lines


async def test_a_lost_session_ends_it(mqtt_broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        process = await start(nursery, pub(mqtt_broker, "-l", "-q", "1"))
        assert process.process.stdin is not None
        await process.process.stdin.send_all(b"one\n")
        await mqtt_broker.wait_until(lambda: mqtt_broker.messages, PATIENCE)
        await mqtt_broker.restart(keep_sessions=False)
        ended = await process.end()
    assert ended.code == 6
    assert ended.err.splitlines()[-1].startswith("trunkline: the server has lost the session")


async def test_repetitions(mqtt_broker: Broker) -> None:
    assert (await run(pub(mqtt_broker, "-m", "x", "-q", "1", "--repeat", "2500"))).code == 0
    assert payloads(mqtt_broker) == [b"x"] * 2500
    assert (await run(pub(mqtt_broker, "-m", "y", "--repeat", "3", "--repeat-delay", "1ms", "-q", "1"))).code == 0
    assert payloads(mqtt_broker)[2500:] == [b"y"] * 3


@pytest.mark.parametrize("words", [["-m", "x"], ["-l"], ["-m", "x", "--repeat", "2"]])
async def test_what_is_refused_is_said(mqtt_broker: Broker, words: list[str]) -> None:
    mqtt_broker.faults.refuse_publish("QUOTA_EXCEEDED", topic="t", times=1)
    ended = await run(pub(mqtt_broker, *words, "-q", "1"), stdin=b"one\ntwo\n")
    assert ended.code == 5
    assert "quota exceeded (0x97)" in ended.err
    assert len(ended.err.splitlines()) == 1
    mqtt_broker.faults.refuse_publish("QUOTA_EXCEEDED", topic="t")
    assert (await run(pub(mqtt_broker, *words, "-q", "1", "--quiet"), stdin=b"one\n")).err == ""


@pytest.mark.mqtt_broker(mqtt={"max_qos": 1, "max_topic_alias": 5})
async def test_what_the_server_does_not_offer(mqtt_broker: Broker) -> None:
    ended = await run(pub(mqtt_broker, "-m", "x", "-q", "2"))
    assert (ended.code, ended.err) == (5, "trunkline: the server offers QoS 1 at most, not 2\n")


async def test_an_alias(mqtt_broker: Broker, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with mqtt_broker.record(journal):
        await run(pub(mqtt_broker, "-m", "x", "--repeat", "3", "--repeat-delay", "1ms", "--topic-alias"))
        await run(pub(mqtt_broker, "-m", "x"))
    assert payloads(mqtt_broker) == [b"x"] * 4
    shown = (await run(command("journal", "show", str(journal)))).out.decode()
    assert shown.count("topic_alias") == 3 or shown.count("alias") >= 3, shown


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto_sub (Debian: mosquitto-clients)")
@pytest.mark.parametrize("version", ["5", "311", "31"])
async def test_to_mosquitto_sub(mqtt_broker: Broker, version: str) -> None:
    base = ["-p", str(mqtt_broker.port), "-V", version, "-q", "2"]
    async with trio.open_nursery() as nursery:
        theirs = await start(nursery, ["mosquitto_sub", *base, "-t", "t", "-C", "3", "-F", "%q %r %p"])
        await mqtt_broker.wait_for_subscription("t", timeout=PATIENCE)
        ended = await run(command("pub", *base, "-t", "t", "-l"), stdin=b"one\n\nthree\n")
        assert ended.code == 0
        assert (await theirs.end()).out == b"2 0 one\n2 0 \n2 0 three\n"


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs mosquitto_pub (Debian: mosquitto-clients)")
async def test_lines_are_those_of_mosquitto_pub(mqtt_broker: Broker) -> None:
    stdin = b"one\n\n two \r\n\nlast"
    base = ["-p", str(mqtt_broker.port), "-t", "t", "-l", "-q", "1"]
    assert (await run(["mosquitto_pub", *base], stdin=stdin)).code == 0
    theirs = payloads(mqtt_broker)
    assert (await run(command("pub", *base), stdin=stdin)).code == 0
    assert payloads(mqtt_broker)[len(theirs) :] == theirs


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-m x", "there is no topic: -t"),
        ("-t a/# -m x", "holds a wildcard"),
        ("-t a", "give one message: -m, -f, -s, -n, -l"),
        ("-t a -m x -n", "give one message"),
        ("-t a -m x -l", "give one message"),
        ("-t a -l --repeat 2", "-l and --repeat exclude each other"),
    ],
)
def test_usage(words: str, text: str) -> None:
    result = CliRunner().invoke(cli, ["pub", *words.split()])
    assert result.exit_code == 2
    assert text in result.stderr


async def test_a_payload_that_does_not_end() -> None:
    """There is no need for a server."""
    for words in (["-f", "/dev/zero"], ["-s"]):
        ended = await run(["sh", "-c", 'exec "$@" </dev/zero', "sh", *command("pub", "-t", "t", *words)])
        name = "/dev/zero" if words[0] == "-f" else "standard input"
        assert ended == (1, b"", f"trunkline: {name}: is longer than 268,435,455 bytes\n")


async def test_ctrl_c_while_the_payload_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with trio.open_nursery() as nursery:
        process = await start(nursery, command("pub", "-t", "t", "-f", str(pipe)))
        writer = await trio.to_thread.run_sync(os.open, pipe, os.O_WRONLY)  # when it is opened there, too
        process.process.send_signal(signal.SIGINT)
        ended = await process.end()
        os.close(writer)
    assert (ended.code, ended.out, ended.err) == (-signal.SIGINT, b"", "")


async def test_standard_error_that_is_closed(mqtt_broker: Broker) -> None:
    """What would be said there is not said on standard output."""
    for words, code in ((("-m", "x", "-d"), 0), (("-m", "x", "-V", "7"), 2), (("-m", "x", "-q", "7"), 2)):
        ended = await run(["sh", "-c", 'exec "$@" 2>&-', "sh", *pub(mqtt_broker, *words)])
        assert (ended.code, ended.out) == (code, b"")
