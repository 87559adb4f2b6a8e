from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.management.plugin_packages import BELL, Install, installing
from trunkline.config.errors import ConfigError
from trunkline.config.reader import load
from trunkline.management.plugin_enabling import disable, enable
from trunkline.plugins import PluginError
from trunkline.plugins.finding import settings_model


@pytest.fixture(autouse=True)
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    (tmp_path / "site").mkdir()
    with installing(tmp_path / "site", monkeypatch) as install:
        install("bells", BELL, bell="Bell")
        yield install


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "broker.toml"
    file.write_text("# ours\n[mqtt]\nmax_qos = 1\n")
    return file


def problems(error: ConfigError) -> list[str]:
    return [str(problem) for problem in error.problems]


def test_enabling_and_disabling(file: Path) -> None:
    assert enable(file, "bell", {"word": "dong", "times": "3", "every": "5m", "topics": "a, b"})
    assert file.read_text() == (
        "# ours\n[mqtt]\nmax_qos = 1\n\n[plugins.bell]\nenabled = true\n"
        'word = "dong"\ntimes = 3\nevery = "5m"\ntopics = ["a", "b"]\n'
    )
    settings = load(file, {}, find_plugin=settings_model).config.plugins["bell"].model_dump()
    assert (settings["times"], settings["every"], settings["topics"]) == (3, 300.0, ("a", "b"))
    assert disable(file, "bell")
    assert 'enabled = false\nword = "dong"\n' in file.read_text()
    assert not disable(file, "bell")
    assert enable(file, "bell")
    assert not enable(file, "bell")
    assert load(file, {}, find_plugin=settings_model).config.plugins["bell"].enabled


def test_all_that_is_wrong_is_told_and_nothing_is_written(file: Path) -> None:
    before = file.read_text()
    with pytest.raises(ConfigError) as caught:
        enable(file, "bell", {"times": "many", "every": "0", "wrd": "x"})
    assert problems(caught.value) == [
        "argument wrd: plugins.bell.wrd: unknown key; did you mean word?",
        'argument times: plugins.bell.times: "many": accepted is a whole number, 1 to 9',
        'argument every: plugins.bell.every: 0.0: accepted is seconds, or text such as "15s", "2h", more than 0',
    ]
    assert file.read_text() == before


def test_what_the_file_had_already_is_checked_too(file: Path) -> None:
    file.write_text("[plugins.bell]\nenabled = false\ntimes = 10\n")
    with pytest.raises(ConfigError) as caught:
        enable(file, "bell")
    assert problems(caught.value) == [f"{file}: plugins.bell.times: 10: accepted is a whole number, 1 to 9"]
    assert enable(file, "bell", {"times": "9"})


def test_what_is_wrong_elsewhere_does_not_matter(file: Path) -> None:
    file.write_text('[mqtt]\nmax_qos = 7\n[auth]\npassword_file = "none"\n[plugins.unknown]\n')
    assert enable(file, "bell")
    assert disable(file, "bell")


def test_what_others_rely_on_is_not_disabled(file: Path) -> None:
    file.write_text('listeners = ["tcp://0.0.0.0:0"]\n[plugins.bell]\n')
    load(file, {}, find_plugin=settings_model)
    with pytest.raises(ConfigError) as caught:
        disable(file, "bell")
    (problem,) = problems(caught.value)
    assert problem.startswith(f"{file}: listeners[0]: other machines can reach tcp://0.0.0.0:0 without logging in")
    assert file.read_text() == 'listeners = ["tcp://0.0.0.0:0"]\n[plugins.bell]\n'


def test_one_that_is_not_installed(file: Path) -> None:
    with pytest.raises(PluginError, match="did you mean bell"):
        enable(file, "bel")
    file.write_text("[plugins.bel]\n")
    assert disable(file, "bel")
    assert not disable(file, "bell")
    with pytest.raises(PluginError, match="did you mean bell"):
        disable(file, "bel-l")


def test_a_file_that_is_not_there(file: Path) -> None:
    file.unlink()
    with pytest.raises(FileNotFoundError):
        enable(file, "bell")
    with pytest.raises(FileNotFoundError):
        disable(file, "bell")
    assert enable(file, "bell", create=True)
    assert file.read_text() == "[plugins.bell]\nenabled = true\n"
