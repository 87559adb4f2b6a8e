"""Actors on trio: mailboxes, calls, monitors, supervisors, timers and a run queue. See docs/actors.md.

Modules that know each other: actor, bonds, calls, child, exits, ref, scheduler, supervisor, timers.
"""

from trunkline.actors.actor import Actor
from trunkline.actors.bonds import Monitor
from trunkline.actors.calls import LATER, Reply
from trunkline.actors.child import Child, Restart
from trunkline.actors.exits import Down, Reason, Shutdown, TooManyRestarts
from trunkline.actors.later import Due, Later, Paced
from trunkline.actors.ref import Ref
from trunkline.actors.scheduler import EndOfTurn, Scheduler
from trunkline.actors.supervisor import Supervisor
from trunkline.actors.system import System, system
from trunkline.actors.task import TaskActor
from trunkline.actors.timers import Timer

__all__ = [
    "LATER",
    "Actor",
    "Child",
    "Down",
    "Due",
    "EndOfTurn",
    "Later",
    "Monitor",
    "Paced",
    "Reason",
    "Ref",
    "Reply",
    "Restart",
    "Scheduler",
    "Shutdown",
    "Supervisor",
    "System",
    "TaskActor",
    "Timer",
    "TooManyRestarts",
    "system",
]
