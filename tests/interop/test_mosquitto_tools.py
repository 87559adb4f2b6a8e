"""mosquitto_pub and mosquitto_sub: the commands that everybody has at hand."""

import contextlib
import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.interop.server import Broker, differs

PATIENCE = 60
every_version = pytest.mark.parametrize("version", ["31", "311", "5"])


@pytest.fixture(autouse=True)
def _tools() -> None:
    missing = [tool for tool in ("mosquitto_pub", "mosquitto_sub") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed (Debian: mosquitto-clients)")


def command(tool: str, broker: Broker, version: str, *more: str) -> list[str]:
    return [tool, "-h", broker.host, "-p", str(broker.port), "-V", version, *more]


def run(tool: str, broker: Broker, version: str, *more: str, feed: str | None = None, status: int = 0) -> str:
    done = subprocess.run(
        command(tool, broker, version, *more),
        input=feed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout


class Subscriber:
    """A mosquitto_sub that has its SUBACK. On a terminal of its own, or it would keep its lines back."""

    def __init__(self, arguments: list[str]) -> None:
        self._read, write = pty.openpty()
        self._process = subprocess.Popen(
            [*arguments, "-d"], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL
        )
        os.close(write)
        self._data = b""

    def until(self, text: str) -> str:
        """What it says up to and including the text."""
        deadline = time.monotonic() + PATIENCE
        wanted = text.encode()
        while wanted not in self._data:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self._data!r}"
            try:
                self._data += os.read(self._read, 65536)
            except OSError:  # the other side of the terminal is closed
                raise AssertionError(f"ended without {text!r}: {self._data!r}") from None
        head, _, self._data = self._data.partition(wanted)
        return (head + wanted).decode()

    def wait(self) -> int:
        with contextlib.suppress(OSError):
            while os.read(self._read, 65536):
                pass
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._read)


@contextlib.contextmanager
def subscriber(broker: Broker, version: str, *more: str) -> Iterator[Subscriber]:
    process = Subscriber(command("mosquitto_sub", broker, version, *more))
    try:
        process.until("Subscribed")
        yield process
    finally:
        process.close()


@every_version
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_pub_and_sub(broker: Broker, name: str, version: str, qos: str) -> None:
    with subscriber(broker, version, "-t", name + "/#", "-q", qos, "-F", "<%t|%q|%r|%p>", "-C", "2") as reading:
        run("mosquitto_pub", broker, version, "-t", name + "/a", "-q", qos, "-m", "grüße")
        reading.until(f"<{name}/a|{qos}|0|grüße>")
        run("mosquitto_pub", broker, version, "-t", name + "/b", "-q", qos, "-n")
        reading.until(f"<{name}/b|{qos}|0|>")
        assert reading.wait() == 0


@every_version
def test_retained(broker: Broker, name: str, version: str) -> None:
    run("mosquitto_pub", broker, version, "-t", name, "-q", "1", "-r", "-m", "kept")
    said = run("mosquitto_sub", broker, version, "-t", name, "-q", "1", "-C", "1", "-F", "%r %p")
    assert said == "1 kept\n"
    run("mosquitto_pub", broker, version, "-t", name, "-q", "1", "-r", "-n")
    # status 27: it timed out, as there was nothing
    assert run("mosquitto_sub", broker, version, "-t", name, "-C", "1", "-W", "1", status=27) == ""


@every_version
def test_offline_messages(broker: Broker, name: str, version: str) -> None:
    if version == "5":
        differs(broker, "sends more than the client's receive maximum of 20")
    run("mosquitto_sub", broker, version, "-i", name, "-c", "-q", "2", "-t", name, "-E")
    lines = [f"line {number}" for number in range(50)]
    run("mosquitto_pub", broker, version, "-t", name, "-q", "2", "-l", feed="\n".join(lines) + "\n")
    said = run("mosquitto_sub", broker, version, "-i", name, "-c", "-q", "2", "-t", name, "-C", "50")
    assert said.splitlines() == lines
    run("mosquitto_sub", broker, version, "-i", name, "-t", name, "-E")


@every_version
def test_a_file_of_300_kilobytes(
    broker: Broker, name: str, version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("payload") / "file"
    path.write_text("0123456789abcde\n" * 20_000)
    run("mosquitto_pub", broker, version, "-t", name, "-q", "1", "-r", "-f", str(path))
    assert run("mosquitto_sub", broker, version, "-t", name, "-C", "1", "-N") == path.read_text()
    run("mosquitto_pub", broker, version, "-t", name, "-q", "1", "-r", "-n")


@every_version
def test_will(broker: Broker, name: str, version: str) -> None:
    with subscriber(broker, version, "-t", name + "/will", "-F", "<%p>", "-C", "1") as watching:
        will = ("--will-topic", name + "/will", "--will-payload", "gone", "--will-qos", "1")
        with subscriber(broker, version, "-t", name, *will):
            pass  # killed
        watching.until("<gone>")


def test_properties(broker: Broker, name: str) -> None:
    shown = "<%A %C %D %F %P %R %S>"
    with subscriber(
        broker,
        "5",
        *("-t", name, "-q", "1", "-C", "1", "-F", shown),
        *("-D", "subscribe", "subscription-identifier", "42"),
    ) as reading:
        run(
            "mosquitto_pub",
            broker,
            "5",
            *("-t", name, "-q", "1", "-m", "x"),
            *("-D", "publish", "content-type", "text/plain"),
            *("-D", "publish", "response-topic", "answer"),
            *("-D", "publish", "correlation-data", "corr"),
            *("-D", "publish", "payload-format-indicator", "1"),
            *("-D", "publish", "user-property", "key", "value"),
        )
        said = reading.until("42>")
        assert said[said.index("<") :] == "< text/plain corr 1 key:value answer 42>"


def test_a_shared_subscription(broker: Broker, name: str) -> None:
    one = ("-t", f"$share/{name}/{name}", "-F", "<%p>", "-q", "1", "-C", "5")
    with subscriber(broker, "5", *one) as first, subscriber(broker, "311", *one) as second:
        run("mosquitto_pub", broker, "5", "-t", name, "-q", "1", "-l", feed="".join(f"{n}\n" for n in range(10)))
        assert first.wait() == 0
        assert second.wait() == 0


def test_unsubscribe(broker: Broker, name: str) -> None:
    with subscriber(broker, "311", "-t", name + "/#", "-U", name + "/#", "-t", name + "-fence", "-C", "1") as reading:
        run("mosquitto_pub", broker, "311", "-t", name + "/a", "-q", "1", "-m", "unwanted")
        run("mosquitto_pub", broker, "311", "-t", name + "-fence", "-q", "1", "-m", "fence")
        assert "unwanted" not in reading.until("fence")
        assert reading.wait() == 0
