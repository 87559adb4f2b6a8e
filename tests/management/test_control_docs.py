"""docs/control.md: each command in it says what the page says, and each command there is is on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.management.control_page import EXAMPLE, PAGE, STREAMS_PAGE, blocks, played, without_what_varies
from trunkline.management.operations import OPERATIONS

TEXT = PAGE.read_text(encoding="utf-8")
STREAMS = STREAMS_PAGE.read_text(encoding="utf-8")


def test_every_operation_is_on_the_page() -> None:
    commands = [shown.command for block in blocks(TEXT + STREAMS) for shown in block]
    missing = [
        name
        for name in OPERATIONS
        if not any(re.search(rf"trunkline (?:ctl )?{name.replace('.', ' ')}\b", command) for command in commands)
    ]
    assert not missing


def test_the_example_is_on_the_page() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") in TEXT


@pytest.mark.skipif(os.name == "nt", reason="the page speaks to a Unix shell")
@pytest.mark.parametrize("page", [TEXT, STREAMS], ids=["control", "streams"])
def test_the_page_shows_what_the_commands_say(page: str, tmp_path: Path) -> None:
    differing = [
        (shown.command, without_what_varies(shown.output), without_what_varies(output))
        for shown, output in played(page, tmp_path)
        if without_what_varies(shown.output) != without_what_varies(output)
    ]
    assert not differing


@pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")
def test_the_example(tmp_path: Path) -> None:
    from tests.management.control_page import scene

    with scene(tmp_path) as here:
        command = [sys.executable, str(EXAMPLE)]
        for arguments in ([], [str(here.socket)]):
            done = subprocess.run(
                [*command, *arguments], env=here.environ, capture_output=True, text=True, check=True, timeout=120
            )
            assert done.stdout == "trunkline has 4 sessions\n"
