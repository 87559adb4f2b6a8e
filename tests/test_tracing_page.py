"""What docs/tracing.md shows is what happens, and it explains every word that it should."""

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from tests.management.asking import controlled
from trunkline.broker.metrics import DropReason
from trunkline.config.reader import from_mapping
from trunkline.hooks.points import MESSAGE_DROPPED
from trunkline.management.ctl import ctl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```\n\nIt prints\n\n```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ trunkline ctl (.+)$", PAGE, re.MULTILINE)


def test_every_block_of_python_is_an_example() -> None:
    assert len(SHOWN) == PAGE.count("```python") == 2


@pytest.mark.parametrize(("name", "block", "output"), SHOWN)
def test_an_example_prints_what_the_page_says(
    name: str, block: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert block == (ROOT / name).read_text(encoding="utf-8")
    runpy.run_path(str(ROOT / name), run_name="__main__")
    assert capsys.readouterr().out == output


def test_every_reason_is_explained() -> None:
    whole, one = (
        set(re.findall(r"^\| `(\w+)`", part, re.MULTILINE)) for part in PAGE.split("did not reach one subscriber")
    )
    assert {reason.word for reason in DropReason if reason.counter.startswith("messages.")} <= whole
    assert {reason.word for reason in DropReason if reason.counter.startswith("delivery.")} == one - {
        "fault"
    }  # of tests
    # and the hook point names them too
    assert all(f"`{reason.word}`" in MESSAGE_DROPPED.doc for reason in DropReason)


def test_every_step_is_explained() -> None:
    steps = PAGE.partition("## The steps")[2].partition("## The reasons")[0]
    assert {"routed", "held", "queued", "delivered", "acked", "completed", "dropped"} == set(
        re.findall(r"^\| `(\w+)`", steps, re.MULTILINE)
    )


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_configuration_is_one(block: str) -> None:
    assert from_mapping(tomllib.loads(block)).trace.on


async def test_the_commands_are_there(tmp_path: Path) -> None:
    async with controlled(tmp_path) as here:

        def run(command: str) -> Result:
            return CliRunner().invoke(ctl, ["--socket", str(tmp_path / "broker.sock"), *shlex.split(command)])

        assert len(COMMANDS) == 7
        for number, command in enumerate(COMMANDS):
            if rows := here.admin.trace.messages()[0]:
                command = re.sub(r"\b[0-9a-f]{32}\b", rows[0].guid, command)
            result = await trio.to_thread.run_sync(run, command)
            assert result.exit_code == 0, (command, result.output)
            if number == 0:
                heating = await here.client("heating")
                await heating.subscribe("home/#")
                here.broker.publish("home/kitchen/temperature", "21")
        assert not here.admin.trace.on
        for other in ("clients show heating", "subscriptions list --client-id heating", "hooks list"):
            result = await trio.to_thread.run_sync(run, other)
            assert result.exit_code == 0, (other, result.output)
            assert f"trunkline ctl {other.replace('heating', 'CLIENT')}" in PAGE.replace("\n", " ")
