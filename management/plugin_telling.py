"""Tells the running broker of a configuration to start, stop or reload a plugin."""

from pathlib import Path
from typing import Any

from trunkline.management.control_choice import choose
from trunkline.management.control_client import ControlClient, NoBroker
from trunkline.management.control_place import PlaceError

_RUNNING = ("running", "starting")


def start(path: Path | None, name: str) -> str:
    """Have the plugin run with the settings that the file has now. Returns what was done, in words.

    Raises:
        ConfigError: the configuration cannot be used.
        NoBroker: none runs.
        SeveralBrokers: it does not say which.
        ControlError: it says no.
    """
    with _broker(path) as broker:
        running = _status(broker, name) in _RUNNING
        broker.call("plugins.reload" if running else "plugins.enable", name=name)
        return f"the broker {broker.node} has started it" + (" anew" if running else "")


def stop(path: Path | None, name: str) -> str:
    """Have the plugin no longer run; raises as `start` does."""
    with _broker(path) as broker:
        if _status(broker, name) in _RUNNING:
            broker.call("plugins.disable", name=name)
            return f"the broker {broker.node} has stopped it"
        return f"it does not run in the broker {broker.node}"


def reload(path: Path | None, name: str) -> str:
    """Have the plugin stopped, imported anew and started; raises as `start` does."""
    with _broker(path) as broker:
        broker.call("plugins.reload", name=name)
        return f"the broker {broker.node} has started it anew"


def _broker(path: Path | None) -> ControlClient:
    try:
        return ControlClient(choose(path))
    except PlaceError as error:
        raise NoBroker(str(error)) from error


def _status(broker: ControlClient, name: str) -> Any:
    return next((row["status"] for row in broker.rows("plugins.list") if row["name"] == name), None)
