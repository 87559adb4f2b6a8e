"""The pages for newcomers say what is so: the tutorial works, and the files of the others are configurations."""

import ast
import builtins
import re
import shlex
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from trunkline.config.config import Config, key_paths
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.reader import from_mapping
from trunkline.hooks.acl_file import parse_rules
from trunkline.management.cli import cli
from trunkline.plugins.finding import settings_model, shipped

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TUTORIAL, re.DOTALL))
PAGES = ["coming-from-mosquitto.md", "coming-from-emqx.md", "troubleshooting.md", "operating.md", "tutorial.md"]


def trunkline(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trunkline", *arguments]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the tutorial has it."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert trunkline(tmp_path, "passwd", "users", "ann", "--stdin", text="secret\n").returncode == 0
    return tmp_path


@pytest.fixture
def port(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "trunkline", "--listen", "tcp://127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = (re.search(r"listening on .* port (\d+): clients need credentials", line) for line in process.stderr)
    yield next(filter(None, found))[1]
    process.terminate()
    process.communicate(timeout=120)


def test_the_configuration_of_the_tutorial_is_good(folder: Path) -> None:
    done = trunkline(folder, "config", "check")
    assert (done.stdout, done.stderr) == ("Good: configuration trunkline.toml.\n", "")
    assert done.stdout in TUTORIAL


def test_whoever_has_a_password_may_listen(folder: Path, port: str) -> None:
    command = [sys.executable, "listen.py", port]
    refused = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert "ConnectRefused: " in refused.stderr
    assert refused.stdout == ""
    listener = subprocess.Popen([*command, "ann", "secret"], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        assert trunkline(folder, "ctl", "publish", "home/kitchen", "21.5").returncode == 0
        assert listener.stdout.readline() == "home/kitchen 21.5\n"
    finally:
        listener.kill()
        listener.communicate()


def test_the_test_of_the_tutorial_passes(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_thermometer.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert " passed" in done.stdout, done.stdout


def test_the_plugin_of_the_tutorial_is_written(folder: Path) -> None:
    """That such a package passes its tests, and can be enabled, is shown where it is made."""
    assert trunkline(folder, "plugins", "new", "door-bell").returncode == 0
    assert (folder / "trunkline-door-bell" / "pyproject.toml").exists()


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_what_they_should_be(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").touch()
    (tmp_path / "acl.toml").touch()
    for mark, block in re.findall(r"(<!-- .* -->\n)?```toml\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL):
        block = block.replace("/var/lib/trunkline", str(tmp_path))
        if "acl" in mark:
            assert parse_rules(block)
        else:
            from_mapping(tomllib.loads(block), settings_model)


@pytest.mark.parametrize("page", PAGES)
def test_keys_that_are_named_are_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    known = {".".join(path) for path in key_paths()}
    columns = [line.split(" | ")[2] for line in text.splitlines() if "coming" in page and line.count(" | ") == 3]
    named = re.findall(r"`([a-z]+\.[a-z_0-9]+)`", "\n".join(columns) if columns else text)
    sections = {path.partition(".")[0] for path in known}
    others = {"control.down", "overload.down", "streams.down", "sys.down", "acl.toml"}  # alarms, a file
    assert [name for name in named if name.partition(".")[0] in sections and name not in known | others] == []
    for plugin in re.findall(r"\[plugins\.([a-z-]+)", text):
        assert plugin in shipped() or plugin == "door-bell"


def written_commands(text: str) -> Iterator[list[str]]:
    """The words behind each `trunkline` of a page, at a prompt or in a sentence."""
    blocks = re.findall(r"```(?:console)?\n(.*?)```", text, re.DOTALL)
    prompts = [
        line
        for block in blocks
        for line in re.findall(r"^[$#] (?:[^']* )?(?:\S*/)?trunkline( .*)", block, re.MULTILINE)
    ]
    sentences = re.findall(r"`trunkline( [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for command in (*prompts, *sentences):
        words = shlex.split(command.partition("|")[0].rstrip("\\"), comments=True)
        yield [word for word in words if word != "…"]


def unknown_words(words: list[str]) -> list[str]:
    """Commands and options among them that the command line does not have."""
    command: click.Command = cli
    left = deque(words)
    if words[0].startswith("-"):
        left.appendleft("serve")  # which is what stands without a command
    unknown = list[str]()
    while left:
        word = left.popleft()
        options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
        if word.startswith("--"):
            if word not in options and word != "--help":
                unknown.append(word)
            elif word != "--help" and not getattr(options[word], "is_flag", False) and left:
                left.popleft()
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            if found is None:
                return [word]
            command = found
    return unknown


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_commands_and_options_are_those_of_the_command_line(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {" ".join(words): found for words in written_commands(text) if (found := unknown_words(words))} == {}


def test_modules_that_are_named_are_there() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *DOCS.glob("*.md")]}
    named = [(page, path) for page, text in pages.items() for path in re.findall(r"`(\w+(?:/\w+)+\.py)`", text)]
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


#: What a page's earlier blocks have made: a session of Spark, the events that it reads.
GIVEN = {"spark", "events", "published"}


def unknown(block: str) -> set[str]:
    """Names that a block uses and nobody has made."""
    tree = ast.parse(block)
    used, made = set[str](), set(dir(builtins)) | GIVEN | {"__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            or isinstance(node, ast.MatchAs | ast.MatchStar)
            and node.name
        ):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            made.add(node.name)
    return used - made


def test_what_is_no_program_says_so() -> None:
    found = {
        (page.name, block[:60]): names
        for page in sorted(DOCS.glob("*.md"))
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if not block.startswith("# a fragment") and (names := unknown(block))
    }
    assert found == {}


def test_what_is_said_of_defaults() -> None:
    config = Config()
    assert (config.session.max_inflight, config.session.max_queue_length) == (100, 10_000)
    assert (config.session.expiry_interval, config.session.max_subscriptions) == (7200, 10_000)
    assert (config.mqtt.max_packet_size, config.mqtt.max_client_id_length) == (10 * 1024**2, 256)
    assert (config.mqtt.max_topic_alias, config.mqtt.assigned_client_id_prefix) == (100, "auto-")
    assert (config.sys.interval, config.retained.check_retain_source) == (10, False)
    assert (config.acl.no_match, config.acl.deny_action) == ("allow", "ignore")
    assert ListenerSettings().max_connections == 100_000
