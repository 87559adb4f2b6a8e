"""Which of the brokers on this machine a command means."""

from pathlib import Path

from trunkline.config.loading import load_with_sources
from trunkline.config.settings import NodeSettings
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_place import find, sockets


class SeveralBrokers(Exception):
    """Nobody said which one is meant. The text has those that run."""


def choose(config: Path | None, socket: Path | None = None, node: str | None = None) -> Path:
    """The control socket that is named, or else the node's, or what the configuration says of one of them, or else that of
    the only broker that runs here.

    Raises:
        PlaceError: there is none.
        SeveralBrokers: nothing is named, and several run.
        ConfigError: the configuration's sections `node` and `control` cannot be used.
    """
    if socket is not None:
        return socket
    if node is None:
        loaded = load_with_sources(config, sections=("node", "control"))
        if loaded.config.control.path is not None:
            return loaded.config.control.path
        if "node.name" in loaded.sources:
            node = loaded.config.node.name
    if node is not None:
        return find(node)
    there = sockets()
    if len(there) > 1:  # some may be of brokers that were killed
        living = {name: text for name, path in sorted(there.items()) if (text := _described(path)) is not None}
        if len(living) > 1:
            names = ", ".join(f"{name} ({text})" for name, text in living.items())
            raise SeveralBrokers(
                f"several brokers run here: {names}; name one with --node, or with node.name in the configuration"
            )
        there = {name: there[name] for name in living}
    return next(iter(there.values())) if there else find(NodeSettings().name)


def _described(path: Path) -> str | None:
    """The broker as a person knows it; None when none lives there."""
    try:
        with ControlClient(path) as broker:
            addresses = [f"{each['host']}:{each['port']}" for each in broker.call("status")["listeners"]]
            return f"process {broker.pid} on {', '.join(addresses) or 'no address'}"
    except ControlError as error:
        return str(error)  # it has enough connections, say
    except NoBroker:
        return None
