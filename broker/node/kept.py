"""What outlives a node without a store, in the same process: as a store would have it."""

from __future__ import annotations

from copy import copy
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Any

import trio

from trunkline.broker.alive_note import ALIVE, NODE
from trunkline.broker.committer import Committer
from trunkline.broker.session.durable import StoredParts, make_durable
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.stored_retained import RETAINED, retained_to_bytes
from trunkline.mqtt.packing import pack
from trunkline.plugins.store import PLUGINS
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine

if TYPE_CHECKING:
    from trunkline.broker.node.parts import Node


class Kept:
    """Sessions with what plugins keep, and retained messages; nothing of a node with a store, which has it itself."""

    def __init__(self, node: Node, *, sessions: bool, retained: bool) -> None:
        #: It does not go back.
        self._clock = node.clock
        self._engine = MemoryEngine()
        if node.storing is None:
            batch = WriteBatch()
            if sessions:
                _write_sessions(node, batch)
                for key, value in node.plugin_stores.rows():
                    batch.put(PLUGINS, key, value)
            for each in node.retained if retained else ():
                batch.put(RETAINED, each.message.topic.encode(), retained_to_bytes(each, self._clock.epoch))
            self._engine.commit(batch)

    def bring_into(self, node: Node) -> None:
        """Before plugins start, and so before clients can connect."""
        node.clock.follow(self._clock)
        node.plugin_stores.restore(rows(self._engine, PLUGINS))
        node.services.pubsub.restore_retained(rows(self._engine, RETAINED), self._clock.epoch)
        now = trio.current_time()
        found = find(self._engine)
        self._recovery = Recovery(found, node.sessions, node.router, self._clock.epoch, now, engine=self._engine)
        for _ in self._recovery.restore():
            pass

    def go_on(self, node: Node) -> None:
        """What the sessions have waited for may happen."""
        self._recovery.go_on(node.scheduler)


def _write_sessions(node: Node, batch: WriteBatch) -> None:
    committer = Committer(_NoWriter(), node.scheduler, node.alarms, node.clock, inf, 0)
    committer.stop()  # the batch is all that is written
    sessions = [each.session for each in node.sessions if each.speaks_mqtt]
    for number, session in enumerate(map(copy, sessions), 1):
        parts = StoredParts.new(committer, number, (maxsize, 0), {"max_length": 0}, (0, 0))
        make_durable(session, committer, number, parts).changed()
    committer.write(batch)
    note = node.clock.note(trio.current_time())
    batch.put(NODE, ALIVE, pack((note.stored, committer.publications.number, note.calendar)))


class _NoWriter:
    """What is written goes into a batch of its own."""

    commit: Any = None
    read: Any = None
