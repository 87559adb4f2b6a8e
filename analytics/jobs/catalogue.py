"""The jobs that there are, and where. Nothing of Spark is imported before a job is asked for."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from trunkline.analytics.jobs.job import Job


class Entry(NamedTuple):
    #: The module that holds it, of which its name is an attribute with `_` for `-`.
    module: str
    title: str
    #: One line, for lists.
    summary: str


CATALOGUE: Final = {
    "latency": Entry(
        "latency", "Delivery latency and loss", "How long deliveries take, and which never came, per window."
    ),
    "traffic": Entry("traffic", "Traffic top-k", "The busiest topics, topic prefixes or clients of each window."),
    "fanout": Entry("fanout", "Fan-out", "How many deliveries and bytes one publish becomes, per topic or filter."),
    "flapping": Entry("flapping", "Flapping clients", "Clients that connect again and again, and reconnect storms."),
    "sessions": Entry("sessions", "Sessions", "How long connections last, and why they end."),
    "denials": Entry(
        "denials", "Denied access", "Clients and addresses that are denied more than usual; guessed logins."
    ),
    "unheard": Entry(
        "unheard", "Dead subscriptions and unheard topics", "Subscriptions that get nothing, topics that nobody hears."
    ),
    "queues": Entry("queues", "Queue growth", "Queues that grow, and when they will be full."),
    "slow-consumers": Entry("slow_consumers", "Slow consumers", "Subscribers that acknowledge late, or much at once."),
    "silent": Entry("silent", "Silent devices", "Clients that publish no more, measured by their own habit."),
    "audit": Entry(
        "audit", "Pipeline audit", "Whether the record is whole: gaps, lost and corrupt events, silent nodes, lag."
    ),
    "balance": Entry("balance", "Cluster balance", "How evenly the nodes carry the load."),
    "moves": Entry("moves", "Moves between nodes", "Clients that go from one node to another, and takeovers."),
}


class UnknownJob(ValueError):
    """No job has this name."""

    def __init__(self, name: str) -> None:
        near = get_close_matches(name, CATALOGUE, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(CATALOGUE)}"
        super().__init__(f"no job {name!r}: {hint}")


def entry(name: str) -> Entry:
    """Raises UnknownJob: when no job has this name."""
    try:
        return CATALOGUE[name]
    except KeyError:
        raise UnknownJob(name) from None


def find(name: str) -> "Job[Any]":
    """The job of this name. Its module is imported now, and PySpark with it.

    Raises:
        UnknownJob: when no job has this name.
        ImportError: when PySpark is not installed.
    """
    module = entry(name).module
    found: Job[Any] = getattr(import_module(f"trunkline.analytics.jobs.{module}"), module)
    return found
