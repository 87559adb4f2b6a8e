"""By which filters a client got a delivery."""

from trunkline.analytics.jobs.filters import ByFilter, Filters, Seen
from trunkline.analytics.jobs.machines import play


def seen(at: int, kind: str, *, filter: str | None = None, topic: str | None = None) -> Seen:
    return Seen(at, "n1", 1, at, kind, filter, topic, at, f"{at:032x}", 1, 10)


def names(machine: Filters, *events: Seen) -> list[tuple[int, str]]:
    return [(result["born"], result["name"]) for result in play(machine, events, 10**9)]


def test_a_delivery_counts_for_every_filter_that_takes_it() -> None:
    found = names(
        ByFilter(10).machine(("client", "c"), None),
        seen(1, "message.delivered", topic="a/b"),
        seen(2, "session.subscribed", filter="a/+"),
        seen(3, "session.subscribed", filter="$share/group/a/#"),
        seen(4, "session.subscribed", filter="b"),
        seen(5, "message.delivered", topic="a/b"),
        seen(6, "message.delivered", topic="a/b/c"),
        seen(7, "session.unsubscribed", filter="a/+"),
        seen(8, "session.unsubscribed", filter="unknown"),
        seen(9, "message.delivered", topic="a/b"),
        seen(10, "session.terminated"),
        seen(11, "message.delivered", topic="b"),
    )
    assert found == [(5, "a/+"), (5, "$share/group/a/#"), (6, "$share/group/a/#"), (9, "$share/group/a/#")]


def test_filters_of_one_client_are_bounded() -> None:
    machine = Filters(2)
    made = [seen(number, "session.subscribed", filter=f"a/{number}") for number in range(3)]
    again = seen(3, "session.subscribed", filter="a/0")
    delivered = [seen(4 + number, "message.delivered", topic=f"a/{number}") for number in range(3)]
    assert names(machine, *made, again, *delivered) == [(4, "a/0"), (5, "a/1")]


def test_a_machine_goes_on_where_it_was_saved() -> None:
    machine = Filters(10)
    assert machine.save() is None
    names(machine, seen(1, "session.subscribed", filter="a"), seen(2, "session.subscribed", filter="b"))
    again = ByFilter(10).machine(("client", "c"), machine.save())
    assert names(again, seen(3, "message.delivered", topic="b")) == [(3, "b")]
