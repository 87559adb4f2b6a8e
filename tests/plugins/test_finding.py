"""Plugins are found by their entry points."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trunkline.plugins import PluginError
from trunkline.plugins.finding import check_name, installed, load, load_aside, settings_model, shipped

Package = Callable[..., None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Installs a package with one module and entry points."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def install(module: str, source: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        information = tmp_path / f"{module}-1.2.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.2\n")
        lines = [f"{name.replace('_', '-')} = {value}" for name, value in points.items()]
        (information / "entry_points.txt").write_text("\n".join(["[trunkline.plugins]", *lines]))
        made.append(module)

    yield install  # type: ignore[misc]
    for module in made:
        sys.modules.pop(module, None)


SOURCE = """
from trunkline.plugins import Context, Settings
class Own(Settings):
    pass
def plugin(context: Context[Own]) -> None: pass
word = 7
"""


def test_an_installed_plugin_is_found_and_loaded(package: Package) -> None:
    package("some_plugin", SOURCE, some_plugin="some_plugin:plugin")
    found = installed()["some-plugin"]
    assert (found.value, found.package, found.version) == ("some_plugin:plugin", "some_plugin", "1.2")
    assert load("some-plugin").__name__ == "plugin"
    assert settings_model("some-plugin").__name__ == "Own"
    assert "some-plugin" not in shipped()


def test_fresh_imports_the_module_anew(package: Package) -> None:
    package("some_plugin", SOURCE, some_plugin="some_plugin:plugin")
    first = load("some-plugin")
    assert load("some-plugin") is first
    package("some_plugin", SOURCE.replace("def plugin", "async def plugin") + "\n\n", some_plugin="some_plugin:plugin")
    assert load("some-plugin", fresh=True) is not first


def test_fresh_imports_all_of_a_package_or_leaves_it_as_it_was(package: Package, tmp_path: Path) -> None:
    package("whole", "", whole="whole.plugin:plugin")
    (tmp_path / "whole").mkdir()
    inner = tmp_path / "whole" / "inner.py"
    inner.write_text("size = 1")
    (tmp_path / "whole" / "__init__.py").write_text(f"from whole.inner import size\n{SOURCE}\n")
    information = tmp_path / "whole-1.2.dist-info" / "entry_points.txt"
    information.write_text("[trunkline.plugins]\nwhole = whole:plugin\n")
    assert getattr(load("whole"), "__globals__")["size"] == 1  # noqa: B009
    inner.write_text("size = 1000")
    assert getattr(load("whole", fresh=True), "__globals__")["size"] == 1000  # noqa: B009
    inner.write_text("oops")
    with pytest.raises(PluginError, match=r"/whole/inner\.py:1: NameError: name 'oops'"):
        load("whole", fresh=True)
    assert sys.modules["whole"].size == 1000
    assert sys.modules["whole.inner"].size == 1000
    del sys.modules["whole.inner"]


async def test_a_broker_that_runs_imports_in_another_thread(package: Package) -> None:
    package("aside", f"import threading\nthread = threading.current_thread()\n{SOURCE}", aside="aside:plugin")
    for fresh in (False, True):
        plugin = await load_aside("aside", fresh=fresh)
        assert getattr(plugin, "__globals__")["thread"] is not threading.main_thread()  # noqa: B009
        assert await load_aside("aside") is plugin
    with pytest.raises(PluginError, match="no plugin 'nosuch' is installed"):
        await load_aside("nosuch")


@pytest.mark.parametrize(
    ("source", "value", "words"),
    [
        ("\n1 / 0", "bad:plugin", r"^bad:plugin cannot be imported: /.*/bad\.py:2: ZeroDivisionError"),
        ("import not_there", "bad:plugin", r"bad\.py:1: ModuleNotFoundError: No module named 'not_there'"),
        ("import json\njson.loads('[')", "bad:plugin", r": /.*/bad\.py:2: JSONDecodeError"),
        ("\nclass (:", "bad:plugin", r"imported: /.*/bad\.py:2: SyntaxError: invalid syntax$"),
        (
            "from trunkline.plugins import hook\n@hook('a')\ndef f(): ...",
            "bad:plugin",
            r"bad\.py:2: HookError: bad\.f: no hook point",
        ),
        ("def f():\n return 1 / 0\nf()", "bad:plugin", r"bad\.py:2: ZeroDivisionError"),
        ("", "bad:plugin", "cannot be imported: AttributeError"),
        ("", "absent:plugin", "No module named 'absent'; if it was installed with --editable while this process ran"),
        ("raise SystemExit", "bad:plugin", r"bad\.py:1: SystemExit$"),
        (SOURCE, "bad:word", "bad:word is 7, which cannot be called"),
    ],
)
def test_one_that_cannot_be_loaded(package: Package, source: str, value: str, words: str) -> None:
    package("bad", source, bad=value)
    with pytest.raises(PluginError, match=words):
        load("bad")


def test_two_of_the_same_name(package: Package) -> None:
    package("one", SOURCE, same="one:plugin")
    package("two", SOURCE, same="two:plugin")
    with pytest.raises(PluginError, match=r"'same' is offered twice: by (one|two) .* and (one|two)"):
        load("same")


def test_one_that_is_not_there() -> None:
    with pytest.raises(PluginError, match=r"no plugin 'topic-rewrit' is installed; did you mean topic-rewrite\?"):
        load("topic-rewrit")
    with pytest.raises(PluginError, match="installed are auto-subscribe, "):
        load("zzzzzz")


@pytest.mark.parametrize("name", ["", "A", "a_b", "a--b", "-a", "a-", "a b", "a.b", "1a", "ä"])
def test_what_a_plugin_cannot_be_called(name: str) -> None:
    with pytest.raises(PluginError, match="lower-case letters, digits and single hyphens"):
        check_name(name)


def test_those_that_come_with_the_broker() -> None:
    assert {"topic-rewrite", "webhook", "jwt"} <= set(shipped())
    for name in shipped():
        check_name(name)
