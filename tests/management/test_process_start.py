"""What processes of a broker check and say when they start."""

import logging
from pathlib import Path

import pytest

from trunkline.config.config import Config
from trunkline.config.mqtt_settings import SessionSettings
from trunkline.config.node_settings import StoreSettings
from trunkline.management.process_start import check_alone, log_start
from trunkline.store import StoreUnavailable


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (0, "end with their connections"),
        (3600, "end 1:00:00 after their connections"),
        (0xFFFF_FFFF, "outlive their connections for ever"),
    ],
)
def test_how_long_sessions_last(caplog: pytest.LogCaptureFixture, interval: int, words: str) -> None:
    with caplog.at_level(logging.INFO):
        log_start(Config(session=SessionSettings(expiry_interval=interval)), "defaults")
    version, expiry = caplog.messages
    assert version.endswith(", defaults")
    assert words in expiry


def test_one_process_does_not_take_the_place_of_several(tmp_path: Path) -> None:
    """Their sessions would seem to be gone."""
    config = Config(store=StoreSettings(path=tmp_path / "a.db"))
    check_alone(config)
    (tmp_path / "a.db-workers").touch()
    with pytest.raises(StoreUnavailable, match=r"a\.db is divided among several workers"):
        check_alone(config)
    check_alone(Config(store=StoreSettings(path=tmp_path / "a.db", durability="memory")))
