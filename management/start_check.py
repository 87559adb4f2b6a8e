"""Checks what a valid configuration refers to before a broker starts: files, addresses, the control socket."""

import os
import socket
from collections.abc import Iterator

from trunkline.broker.security import Security, SecurityError
from trunkline.config.addresses import TakenAddresses
from trunkline.config.config import Config
from trunkline.hooks.chain import Hooks
from trunkline.management.control_place import PlaceError, check_place


def obstacles(config: Config) -> list[str]:
    """All problems that can be found without opening a listener or starting a plugin."""
    return [*_files(config), *_addresses(config), *_control(config)]


def _files(config: Config) -> Iterator[str]:
    try:
        Security(config, Hooks()).load()
    except SecurityError as error:
        yield from error.problems
    log = config.log.file
    if log is not None and (log.is_dir() or not os.access(log if log.exists() else log.absolute().parent, os.W_OK)):
        yield f"log.file: {log} cannot be written"


def _addresses(config: Config) -> Iterator[str]:
    taken = TakenAddresses[str]()
    for listener in config.listeners:
        try:
            found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            yield f"{listener.url}: {error.strerror or error}"
        else:
            other = taken.take({str(address[0]) for *_, address in found}, listener.port, listener.url)
            if other is not None:
                yield f"{other} and {listener.url} mean the same address"


def _control(config: Config) -> Iterator[str]:
    """Only with a path of its own, or if it is required, does the control socket keep a broker from starting."""
    path = config.control.path
    if path is None or config.control.enabled is False:
        return
    try:
        check_place(path.absolute(), config.control.transport)
    except PlaceError as error:
        yield f"control.path: {error}"
