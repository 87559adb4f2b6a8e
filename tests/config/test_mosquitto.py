"""Files of Mosquitto, and words of such files."""

from pathlib import Path

import pytest

from trunkline.config.config import Config
from trunkline.config.errors import ConfigError
from trunkline.config.mosquitto import _WORDS
from trunkline.config.reader import load
from trunkline.plugins.finding import settings_model

PAGE = "is Mosquitto's: docs/coming-from-mosquitto.md says what it is here"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("# a listener\nlistener 1883\nallow_anonymous true\n", "listener"),
        ("persistence true\n", "persistence"),
        ("[persistence]\nx = 1\n", "persistence"),
        ("port = 1883\n", "port"),
        ("[listener]\n", ""),  # as nearly
        ("[session]\nmax_queued_messages = 3\n", "max_queued_messages"),
        ("[auth]\nacl_file = 'x'\n", "acl_file"),
        ("[session]\nallow_anonymous = true\n", ""),  # is a key of another section
        ("[mqtt]\nmax_keepalive = 3\n", ""),  # has nearly the same name here
        ("[plugins.bans]\nuser = 'x'\n", ""),
        ("retain = [\n", ""),
        ("retained = [\n", ""),
        ("\n\n", ""),
    ],
)
def test_the_page_is_named(text: str, word: str, tmp_path: Path) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text(text)
    said = ""
    try:
        load(file, {}, find_plugin=settings_model)
    except ConfigError as error:
        said = str(error)
    assert (f"; {word} {PAGE}" if word else "") in said
    assert (PAGE in said) == bool(word)


def test_no_word_is_a_section() -> None:
    assert not _WORDS & Config.model_fields.keys()


def test_the_page_is_there() -> None:
    assert (Path(__file__).parents[2] / "docs" / "coming-from-mosquitto.md").is_file()
