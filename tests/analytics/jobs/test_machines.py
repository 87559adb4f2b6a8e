"""The machines of all jobs: however a stream is cut, they tell what they tell of the same events recorded."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.analytics.jobs.machines import Keeper, Machine, Machines, Result, Subject, microseconds, play


class Beep(NamedTuple):
    at: int
    node: str
    incarnation: int
    seq: int
    word: str


class Watch(Machine[Beep]):
    """Tells each word, and when there has been none for ten microseconds."""

    state = ("words",)

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.words: list[str] = []

    def event(self, event: Beep) -> Iterator[Result]:
        self.words.append(event.word)
        self.due = event.at + 10
        yield {"time": event.at, "words": "".join(self.words), "subject": self.subject}

    def expire(self) -> Iterator[Result]:
        yield {"time": self.due, "words": "".join(self.words) + "."}
        self.words, self.due = [], None

    def end(self, now: int) -> Iterator[Result]:
        yield {"time": now, "words": "end"}


WATCHING = Machines(Beep, Watch)
CLIENT = Subject("client", "c")


def beep(at: int, word: str, seq: int = 0) -> Beep:
    return Beep(at, "n1", 1, seq, word)


def words(results: Iterator[Result]) -> list[tuple[int, str]]:
    return [(result["time"], result["words"]) for result in results]


def test_seconds_become_whole_microseconds() -> None:
    assert microseconds(0.1) == 100_000


def test_an_event_of_the_very_time_comes_before_what_is_due() -> None:
    assert words(play(Watch(CLIENT), [beep(0, "a"), beep(10, "b")], 19)) == [(0, "a"), (10, "ab")]


def test_what_is_due_comes_before_a_later_event() -> None:
    assert words(play(Watch(CLIENT), [beep(0, "a"), beep(11, "b")], 20)) == [(0, "a"), (10, "a."), (11, "b")]


def test_what_is_due_when_time_ends_comes() -> None:
    assert words(play(Watch(CLIENT), [beep(0, "a")], 10)) == [(0, "a"), (10, "a.")]


class TestKeeper:
    def test_an_event_is_held_back_until_nothing_older_can_come(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(CLIENT, beep(5, "b"))
        assert list(keeper.advance(4)) == []
        assert keeper.next() == 5
        keeper.add(CLIENT, beep(4, "a"))
        assert words(keeper.advance(5)) == [(4, "a"), (5, "ab")]

    def test_events_of_one_time_come_in_the_order_of_their_numbers(self) -> None:
        keeper = Keeper(WATCHING)
        for event in (beep(5, "c", 2), beep(5, "a", 0), beep(5, "b", 1)):
            keeper.add(CLIENT, event)
        assert words(keeper.advance(5))[-1] == (5, "abc")

    def test_subjects_know_nothing_of_each_other(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(Subject("client", "x"), beep(1, "a"))
        keeper.add(Subject("node", "x"), beep(2, "b"))
        found = [(result["subject"], result["words"]) for result in keeper.advance(2)]
        assert found == [(("client", "x"), "a"), (("node", "x"), "b")]

    def test_what_is_due_is_done_without_an_event(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(CLIENT, beep(1, "a"))
        list(keeper.advance(1))
        assert keeper.next() == 11
        assert words(keeper.advance(11)) == [(11, "a.")]

    def test_who_has_nothing_to_remember_is_not_kept(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(CLIENT, beep(1, "a"))
        assert keeper.save() is not None
        list(keeper.advance(100))
        assert (keeper.save(), keeper.next()) == (None, None)

    def test_what_was_saved_goes_on(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(CLIENT, beep(1, "a"))
        keeper.add(CLIENT, beep(9, "b"))
        list(keeper.advance(5))
        later = Keeper(WATCHING, keeper.save())
        assert later.next() == 9
        assert words(later.advance(30)) == [(9, "ab"), (19, "ab.")]

    def test_a_late_event_does_no_harm(self) -> None:
        keeper = Keeper(WATCHING)
        keeper.add(CLIENT, beep(50, "a"))
        list(keeper.advance(50))
        keeper.add(CLIENT, beep(3, "b"))
        assert words(keeper.advance(50)) == [(3, "ab"), (13, "ab.")]


# The jobs' own machines. They need no Spark, but the modules that declare the jobs do.


def machines() -> dict[str, tuple[Machines, Sequence[Subject]]]:
    pytest.importorskip("pyspark")
    from trunkline.analytics.jobs import denials, flapping, moves, sessions, silent, slow_consumers, unheard
    from trunkline.analytics.jobs.alerts import Occurrence

    flaps = flapping.FlappingOptions(
        limit=2, window=5, calm=3, storm_window=4, storm_factor=1.5, storm_minimum=2, storm_calm=8, forget=20
    )
    denied = denials.DenialOptions(
        window=4, factor=1.5, minimum=2, calm=4, forget=20, login_window=5, login_limit=2, name_limit=2
    )
    habit = silent.SilentOptions(minimum=2, learn=2, factor=2, forget=30)
    slow = slow_consumers.SlowConsumersOptions(window=5, unanswered_after=6, max_open=3)
    clients = [Subject("client", "a"), Subject("client", "b")]
    return {
        "flapping": (Machines(Occurrence, partial(flapping._machine, flaps)), [*clients, Subject("node", "n1")]),
        "denials": (
            Machines(Occurrence, partial(denials._machine, denied)),
            [*clients, Subject("peer", "p"), Subject("logins", "p"), Subject("names", "p")],
        ),
        "silent": (Machines(silent.PublishEvent, partial(silent.Rhythm, habit)), clients),
        "sessions": (
            Machines(sessions.ConnectionEvent, partial(sessions.Connections, 6_000_000, True)),
            [Subject("node", "n1"), Subject("node", "n2")],
        ),
        "moves": (Machines(moves.MoveEvent, partial(moves.Whereabouts, 20_000_000)), clients),
        "slow-consumers": (Machines(slow_consumers.ConsumerEvent, partial(slow_consumers.Answers, slow)), clients),
        "unheard": (Machines(unheard.SubscriptionEvent, partial(unheard.Lives, 10_000_000, 3, True)), clients),
    }


CHOICES: dict[str, list[Any]] = {
    "node": ["n1", "n2"],
    "incarnation": [1, 2],
    "weight": [1, 1, 3],
    "kind": [
        "client.connected",
        "client.connected",
        "client.disconnected",
        "client.disconnected",
        "node.tick",
        "exporter.stopped",
    ],
    "moves.kind": ["client.connected", "client.connected", "client.disconnected", "session.taken_over"],
    "slow-consumers.kind": [
        "message.delivered",
        "message.delivered",
        "message.acked",
        "client.connected",
        "session.stats",
    ],
    "unheard.kind": ["message.delivered", "session.subscribed", "session.unsubscribed", "session.created"],
    "message": ["m1", "m2", "m3"],
    "qos": [1, 2],
    "queue_length": [5, None],
    "inflight": [3, None],
    "inflight_limit": [None, 3],
    "topic": ["a", "b"],
    "filter": ["a", "+"],
    "client_id": ["a", "b"],
    "username": ["u1", "u2", "u3", None],
    "peer": ["p"],
    "listener": ["tcp"],
    "protocol": [5],
    "reason_code": [0, 128, 141, 142, 160, None],
    "reason": ["why"],
    "latency_us": [None, 0, 1_000_000, 7_000_000],
}


@st.composite
def arrivals(draw: st.DrawFn, job: str, logic: Machines, subjects: Sequence[Subject]) -> list[tuple[int, list[Any]]]:
    """Batches of `(subject, event)` with the watermark at which each comes: no event is as old as one before."""
    numbers = st.integers(min_value=0, max_value=60)
    rows = []
    for seq in range(draw(st.integers(min_value=1, max_value=25))):
        at = draw(numbers) * 500_000
        values = {"at": at, "seq": seq} | {
            name: draw(st.sampled_from(CHOICES.get(f"{job}.{name}", CHOICES[name])))
            for name in logic.event._fields
            if name in CHOICES
        }
        rows.append((draw(st.sampled_from(subjects)), logic.event(**values)))
    marks = sorted(draw(st.lists(numbers, max_size=6)))
    batches: list[tuple[int, list[Any]]] = [(mark * 500_000, []) for mark in marks] + [(10**9, [])]
    for subject, event in rows:
        possible = [n for n in range(len(batches)) if n == 0 or batches[n - 1][0] < event.at]
        batches[draw(st.sampled_from(possible))][1].append((subject, event))
    return batches


@pytest.mark.parametrize("name", ["flapping", "denials", "silent", "sessions", "moves", "slow-consumers", "unheard"])
@settings(max_examples=40)
@given(data=st.data())
def test_any_cut_into_batches_gives_what_one_pass_gives(name: str, data: st.DataObject) -> None:
    logic, subjects = machines()[name]
    batches = data.draw(arrivals(name, logic, subjects))
    everything = sorted((pair for _, batch in batches for pair in batch), key=lambda pair: pair[1][:4])
    recorded = [
        result
        for subject in subjects
        for result in play(logic.make(subject), [event for own, event in everything if own == subject], 10**9)
    ]
    streamed: list[Result] = []
    saved = None
    for watermark, batch in batches:
        keeper = Keeper(logic, saved)
        for subject, event in batch:
            keeper.add(subject, event)
        streamed += keeper.advance(watermark)
        due = keeper.next()
        assert due is None or due > watermark
        saved = keeper.save()
    assert sorted(map(str, streamed)) == sorted(map(str, recorded))
