"""Tests of `terminate`: the end of an actor, seen from inside and without an await."""

import pytest
import trio

from trunkline.actors import Actor, Ref, system


class Closing(Actor[str]):
    def __init__(self) -> None:
        self.log: list[object] = []

    def handle(self, message: str) -> None:
        if message == "crash":
            raise ValueError("asked to")
        self.stop()

    def terminate(self, reason: BaseException | None) -> None:
        self.log.append(reason)
        if self.log[0] is None and len(self.log) > 1:
            raise AssertionError("terminated twice")


async def ended(actor: Closing, ref: Ref[str], message: str) -> None:
    ref.cast(message)
    with trio.fail_after(120):
        await ref.join()


@pytest.mark.parametrize(("message", "kind"), [("stop", type(None)), ("crash", ValueError)])
async def test_it_runs_once_with_the_reason(message: str, kind: type) -> None:
    async with system() as actors:
        actor = Closing()
        await ended(actor, actors.start(actor), message)
    assert [type(reason) for reason in actor.log] == [kind]


async def test_it_runs_when_the_supervisor_stops() -> None:
    async with system() as actors:
        actor = Closing()
        actors.start(actor)
    assert len(actor.log) == 1


class Clumsy(Closing):
    def terminate(self, reason: BaseException | None) -> None:
        raise RuntimeError("in terminate")


async def test_what_it_raises_becomes_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        actor = Clumsy()
        ref = actors.start(actor)
        await ended(actor, ref, "stop")
        assert isinstance(await ref.join(), RuntimeError)
    assert len(caplog.records) == 1


async def test_what_it_raises_does_not_hide_the_crash_before(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        actor = Clumsy()
        ref = actors.start(actor)
        await ended(actor, ref, "crash")
        assert isinstance(await ref.join(), ValueError)
    assert "crashed in terminate" in caplog.text
    assert len(caplog.records) == 2
