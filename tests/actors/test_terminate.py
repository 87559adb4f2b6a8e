"""`terminate`: the end of an actor, seen from inside and without an await."""

import logging

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
    with trio.fail_after(1):
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


async def test_what_it_raises_is_logged_and_the_actor_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        actor = Clumsy()
        with caplog.at_level(logging.ERROR):
            await ended(actor, actors.start(actor), "stop")
    assert "terminate raised" in caplog.text
