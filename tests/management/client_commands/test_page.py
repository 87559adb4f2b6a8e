"""docs/client-command.md: what it shows happens, and it explains what there is."""

import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest

from tests.management.client_commands.running import run
from tests.test_house import ROOT
from trunkline.management.client_commands import ending
from trunkline.management.client_commands.formats import compiled
from trunkline.management.client_commands.pub import pub
from trunkline.management.client_commands.rr import rr
from trunkline.management.client_commands.sub import sub
from trunkline.testing import Broker

PAGE = (ROOT / "docs" / "client-command.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
async def test_the_commands_print_what_the_page_says(mqtt_broker: Broker) -> None:
    assert len(EXAMPLES) == PAGE.count("\n$ ") > 5
    start = f'trunkline() {{ {shlex.quote(sys.executable)} -m trunkline "$@"; }}\n'
    for command, output in EXAMPLES:
        ended = await run(["bash", "-c", start + command], environ={"TRUNKLINE_MQTT_URL": mqtt_broker.url})
        assert (ended.out.decode(), ended.err) == (output, ""), command


def test_every_exit_code_is_explained() -> None:
    table = PAGE.split("| code |")[1].split("\n\n")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    own = {value for value in vars(ending).values() if isinstance(value, int) and not isinstance(value, bool)}
    assert listed == {0, *own}


def test_every_sequence_of_a_format_is_explained() -> None:
    table = PAGE.split("| `-F` |")[1].split("\n\n")[0]
    explained = set(re.findall(r"`([%\\].)`", table))
    printable = {
        f"{start}{letter}" for start in "%\\" for letter in map(chr, range(33, 127)) if _is_known(start + letter)
    }
    assert explained == printable


def _is_known(form: str) -> bool:
    try:
        compiled(form)
    except ValueError:
        return False
    return True


def test_every_option_of_the_page_is_there() -> None:
    words = {word for command in (pub, rr, sub) for option in command.params for word in option.opts}
    shown = set(re.findall(r"`(--?[a-zA-Z][a-z-]*)", PAGE.split("## What differs")[0]))
    assert shown - {"--help"} <= words


@pytest.mark.parametrize("command", [pub, rr, sub])
def test_options_of_mosquittos_commands_are_there_or_named_as_missing(command: click.Command) -> None:
    tool = f"mosquitto_{command.name}"
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool} (Debian: mosquitto-clients)")
    text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=False).stdout
    if "version 2.0" not in text:
        pytest.skip("another version of Mosquitto may have other options")
    theirs = set(re.findall(r"^ (--?[a-zA-Z][a-z0-9-]*)(?: :|$)", text, re.MULTILINE))
    assert len(theirs) > 30
    ours = {word for option in command.params for word in option.opts}
    missing = set(re.findall(r"`(--?[a-zA-Z][a-z0-9-]*)`", PAGE.split("## What differs")[1]))
    assert theirs - ours - {"--help"} <= missing
