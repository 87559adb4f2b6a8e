"""Chooses the broker of a command among those on this machine, and connects to it."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from trunkline.config.addresses import shown_address
from trunkline.config.errors import ConfigError
from trunkline.config.node_settings import NodeSettings
from trunkline.config.reader import load
from trunkline.management.command_line import BAD_USAGE, FAILED, NO_BROKER, fail
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_group import ControlGroup
from trunkline.management.control_place import WORKERS, PlaceError, find, sockets, worker_sockets

#: Error codes of the broker that mean that the command is wrong.
_WRONG = ("bad_request", "malformed")


class SeveralBrokers(Exception):
    """No broker is named, and several run. The text names them."""


@contextmanager
def connected(
    config: Path | None, socket: Path | None = None, node: str | None = None
) -> Generator[ControlClient | ControlGroup]:
    """A connection to the broker that `choose` finds, for a command. On an error the command prints it and ends."""
    try:
        with opened(choose(config, socket, node)) as broker:
            if isinstance(broker, ControlGroup):
                for number in broker.missing:
                    click.echo(f"trunkline: worker {number} does not answer, and its part is missing", err=True)
            yield broker
    except (NoBroker, PlaceError) as error:
        fail([error], NO_BROKER)
    except SeveralBrokers as error:
        fail([error], BAD_USAGE)
    except ConfigError as error:
        fail(error.problems, BAD_USAGE)
    except ControlError as error:
        fail([error], BAD_USAGE if error.code in _WRONG else FAILED)


def opened(path: Path) -> ControlClient | ControlGroup:
    """A control socket, or the folder with those of several workers.

    Raises:
        NoBroker: nobody answers there.
        ControlError: the broker accepts no connection now.
    """
    return ControlGroup(path) if path.is_dir() else ControlClient(path)


def choose(config: Path | None, socket: Path | None = None, node: str | None = None) -> Path:
    """The named control socket, or folder of several, or else the named node's, or else the one that the configuration
    specifies, or else that of the only broker that runs here.

    Raises:
        PlaceError: there is none.
        SeveralBrokers: none is named, and several run.
        ConfigError: the configuration's sections `node` and `control` cannot be used.
    """
    if socket is not None:
        return socket
    if node is None:
        loaded = load(config, sections=("node", "control"))
        if (path := loaded.config.control.path) is not None:
            workers = path.with_name(path.stem + WORKERS)
            return workers if worker_sockets(workers) else path
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
                f"several brokers run here: {names}; "
                "name one with --node NAME before the command, or with node.name in the configuration"
            )
        there = {name: there[name] for name in living}
    return next(iter(there.values())) if there else find(NodeSettings().name)


def _described(path: Path) -> str | None:
    """A description of the broker for people; None if none runs there."""
    try:
        with opened(path) as broker:
            addresses = [shown_address((each["host"], each["port"])) for each in broker.call("status")["listeners"]]
            return f"process {broker.pid} on {', '.join(addresses) or 'no address'}"
    except ControlError as error:
        return str(error)  # for example, it has too many connections
    except NoBroker:
        return None
