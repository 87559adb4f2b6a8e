"""Checks what a valid configuration refers to before a broker starts: files, addresses, control socket and store."""

import inspect
import os
import socket
from collections.abc import Iterator

from trunkline.broker.security import read_files
from trunkline.config.addresses import ANY_HOST, TakenAddresses
from trunkline.config.config import Config
from trunkline.config.errors import SecurityError
from trunkline.config.store_place import NoStateFolder, store_path
from trunkline.management.control_place import PlaceError, check_place
from trunkline.plugins.declaring import marks
from trunkline.plugins.finding import load
from trunkline.plugins.registered import misplaced
from trunkline.store import StoreError
from trunkline.store.sqlite import SqliteEngine


def obstacles(config: Config) -> list[str]:
    """All problems that can be found without opening a listener or starting a plugin."""
    return [*_files(config), *_addresses(config), *_control(config), *_store(config), *_plugins(config)]


def _files(config: Config) -> Iterator[str]:
    try:
        read_files(config)
    except SecurityError as error:
        yield from error.problems
    for listener in config.listeners:
        if listener.tls is None:
            continue
        from trunkline.broker.net.tls_context import TlsContext  # few configurations have TLS

        try:
            TlsContext(listener.tls, listener.label)
        except SecurityError as error:
            yield from error.problems
    log = config.log.file
    if log is not None and (log.is_dir() or not os.access(log if log.exists() else log.absolute().parent, os.W_OK)):
        yield f"log.file: {log} cannot be written"


def _addresses(config: Config) -> Iterator[str]:
    taken = TakenAddresses[str]()
    for listener in config.listeners:
        if listener.address.scheme == "unix" or listener.systemd_socket:
            continue
        host = None if listener.host == ANY_HOST else listener.host
        try:
            found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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


def _store(config: Config) -> Iterator[str]:
    """A store that another broker has is no problem: it may be this broker, which is to be restarted."""
    if config.durability(standalone=True) == "memory":
        return
    try:
        path = store_path(config.store, config.node).absolute()
        if path.exists():
            SqliteEngine(path, read_only=True).close()
    except (NoStateFolder, StoreError) as error:
        yield f"store.path: {error}"
        return
    folder = next(folder for folder in path.parents if folder.exists())
    if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        yield f"store.path: {path} cannot be written"


def _plugins(config: Config) -> Iterator[str]:
    """The hooks that a plugin registers when it starts are known only then."""
    for name, settings in config.plugins.items():
        if settings.enabled and settings.scope == "node":
            factory = load(name)
            for method, mark in marks(factory) if inspect.isclass(factory) else ():
                yield misplaced(name, mark.point, inspect.getattr_static(factory, method))
