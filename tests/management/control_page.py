"""docs/control.md and docs/streams.md, run: every command in them against a broker, in the order in which the page has
them.

`python -m tests.management.control_page` writes what they say into the pages.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from trunkline.client import ConnectionSettings, Disconnected
from trunkline.client.sync import Client
from trunkline.management.cli import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "control.md"
#: Another page with commands that are run.
STREAMS_PAGE = ROOT / "docs" / "streams.md"
EXAMPLE = ROOT / "examples" / "control.py"

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_GUID = re.compile(r"\b[0-9a-f]{32}\b")
#: What is different in each run.
_VARYING = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "MOMENT"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\"(connected|created)_at\": [\d.]+"), "MOMENT"),
    (re.compile(r"(?m)^(pid|uptime|listeners\[0\]\.port) +[\d.]+"), r"\1 NUMBER"),
    (re.compile(r"/\S+/(trunkline(-\d+)?)/"), r"FOLDER/\1/"),
    (re.compile(r"trunkline-\d+"), "trunkline-UID"),
    (re.compile(r"[ -]*\b0\.1\.0\b"), "VERSION"),
    (re.compile(r"(?m)\b(waiting +\d+) +\d+ +(\d+) +[\d.]+$"), r"\1 HANDLED \2 AGE"),
    (_GUID, "GUID"),
    (re.compile(r" +"), " "),
]


@dataclass
class Shown:
    """A command of the page, and what the page says that it prints."""

    command: str
    output: str

    def text(self) -> str:
        return f"$ {self.command}\n{self.output}"


def blocks(text: str) -> list[list[Shown]]:
    found: list[list[Shown]] = []
    for block in _BLOCK.findall(text):
        parts = re.split(r"(?m)^\$ (.*)\n", block)[1:]
        found.append([Shown(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)])
    return found


def without_what_varies(output: str) -> str:
    for pattern, word in _VARYING:
        output = pattern.sub(word, output)
    return output


#: What has happened before a command, and is not on the page.
_BEFORE = {"trunkline ctl alarms list": [f"trunkline ctl retained set {topic} 1" for topic in "abc"]}


class Here:
    """A broker in a process of its own, with clients, and a shell."""

    def __init__(self, folder: Path) -> None:
        own = {key: value for key, value in os.environ.items() if not key.startswith("TRUNKLINE_")}
        path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", "")])
        places = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder)}
        self.environ = {**own, **places, "PATH": path}
        self.socket = folder / "trunkline" / "trunkline.sock"
        settings = {"TRUNKLINE_SYS__INTERVAL": "0", "TRUNKLINE_RETAINED__MAX_MESSAGES": "2"}
        self.broker = subprocess.Popen(
            [sys.executable, "-m", "trunkline", "serve", "--listen", "tcp://127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environ, **settings},
        )
        assert self.broker.stderr is not None
        lines = (re.search(r"listening on .* port (\d+)", line) for line in self.broker.stderr)
        self.port = int(next(found[1] for found in lines if found))

    def run(self, command: str) -> str:
        """All that it prints. `trunkline` runs in this process, as starting another takes long; a shell runs what
        stands before and behind it in a pipe."""
        output = ""
        for part in command.split(" | "):
            words = shlex.split(part)
            if words[0] == "trunkline":
                output = CliRunner().invoke(cli, words[1:], input=output, env=self.environ).output
            else:
                output = subprocess.run(
                    ["sh", "-c", f"{part} 2>&1"], input=output, capture_output=True, text=True, timeout=120, check=False
                ).stdout
        return output

    def end(self) -> None:
        self.broker.terminate()
        self.broker.communicate(timeout=120)


@contextmanager
def client(here: Here, client_id: str, *filters: tuple[str, int]) -> Iterator[None]:
    """Connected and subscribed. It does not come back when it is kicked."""
    expiry = 3600 if client_id == "phone" else 0
    opened = Client(
        ConnectionSettings(
            host="127.0.0.1", port=here.port, client_id=client_id, clean_start=False, session_expiry=expiry
        )
    )
    with suppress(Disconnected), opened:
        for topic_filter, qos in filters:
            opened.subscribe(topic_filter, qos=qos).close()  # messages are acknowledged, and dropped
        yield


@contextmanager
def scene(folder: Path) -> Iterator[Here]:
    here = Here(folder)
    with ExitStack() as stack:
        stack.callback(here.end)
        with client(here, "phone", ("alerts/#", 1)):
            pass
        stack.enter_context(client(here, "visitor", ("lobby", 0)))
        stack.enter_context(client(here, "kitchen", ("home/+/temperature", 1)))
        stack.enter_context(client(here, "dashboard", ("home/#", 0), ("$share/workers/home/#", 1)))
        yield here


def played(text: str, folder: Path) -> Iterator[tuple[Shown, str]]:
    """Each command with what it says now. Ids of messages in later commands are those that earlier ones gave."""
    ids: dict[str, str] = {}
    with scene(folder) as here:
        for block in blocks(text):
            for shown in block:
                command = _GUID.sub(lambda found: ids.get(found[0], found[0]), shown.command)
                for earlier in _BEFORE.get(command, []):
                    here.run(earlier)
                if command == "trunkline ctl trace list":  # not before its subscribers have acknowledged it
                    while json.loads(here.run(f"{command} --json") or "{}").get("completed", 0) < 2:
                        pass
                output = here.run(command)
                given = _GUID.findall(shown.output) or _GUID.findall(text)[:1]
                ids.update(zip(given, _GUID.findall(output), strict=False))
                yield Shown(command, shown.output), output


def main() -> None:
    for page in (PAGE, STREAMS_PAGE):
        write(page)


def write(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        results = iter([(shown, _anonymous(output, folder)) for shown, output in played(text, Path(folder))])

    def written(found: re.Match[str]) -> str:
        count = len(blocks(found[0])[0])
        return (
            "```console\n" + "".join(f"$ {next_.command}\n{output}" for next_, output in _take(results, count)) + "```"
        )

    text = _BLOCK.sub(written, text)
    text = re.sub(
        r"(<!-- examples/control.py -->\n```python\n).*?```",
        lambda found: found[1] + EXAMPLE.read_text(encoding="utf-8") + "```",
        text,
        flags=re.DOTALL,
    )
    page.write_text(text, encoding="utf-8")


def _anonymous(output: str, folder: str) -> str:
    return re.sub(r"trunkline-\d+", "trunkline-1000", output.replace(folder, "/run/user/1000"))


def _take(results: Iterator[tuple[Shown, str]], count: int) -> list[tuple[Shown, str]]:
    return [next(results) for _ in range(count)]


if __name__ == "__main__":
    main()
