"""Packages that are installed for one test: a module, and the entry points of its plugins."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Module name, its text, and its plugins: `bell=` the attribute; underscores stand for hyphens.
Install = Callable[..., None]


@contextmanager
def installing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs packages for the length of a block."""
    made: list[str] = []

    def install(module: str, source: str, **attributes: str) -> None:
        (folder / f"{module}.py").write_text(source)
        points = {name.replace("_", "-"): f"{module}:{attribute}" for name, attribute in attributes.items()}
        describe(folder / f"{module}-1.2.dist-info", module, "1.2", points)
        made.append(module)

    monkeypatch.syspath_prepend(folder)
    try:
        yield install
    finally:
        for module in made:
            sys.modules.pop(module, None)


def describe(folder: Path, package: str, version: str, points: dict[str, str]) -> None:
    """Write what an installed package says of itself."""
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (folder / "entry_points.txt").write_text("".join(["[trunkline.plugins]\n", *lines]))


BELL = '''
"""Of the module."""
from trunkline.config.units import Duration, Text, Whole
from trunkline.plugins import Context, Settings, hook, setting

class BellSettings(Settings):
    guards = ("client.authenticate",)
    word: Text = setting("ding", "What it says.")
    times: Whole = setting(1, "How often.", "times", ge=1, le=9)
    every: Duration = setting(60.0, "Time between two.", "seconds", gt=0)
    topics: tuple[Text, ...] = setting((), "Where.")

class Bell:
    """Rings when
    a client connects.

    More than once, if it is told to.
    """

    def __init__(self, context: Context[BellSettings]) -> None: ...

    @hook("client.connected", priority=5)
    def ring(self, client: object) -> None: ...

    @hook("client.authenticate")
    def ask(self, client: object, password: bytes | None) -> None: ...

def function(context: Context[BellSettings]) -> None: ...

print("bells: here")
'''
