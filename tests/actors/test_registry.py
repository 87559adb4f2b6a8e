"""Names for actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tests.actors.probes import Probe, settle, waiter
from trunkline.actors import Registry, Restart, system

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_name_lasts_as_long_as_its_actor() -> None:
    async with system() as actors:
        registry = actors.registry
        ref = actors.start(Probe())
        registry.register("one", ref)
        registry.register("alias", ref)
        assert registry["one"] is registry.get("alias") is ref
        assert list(registry) == ["one", "alias"]
        assert "one" in registry
        assert len(registry) == 2
        ref.stop()
        await settle()
        assert len(registry) == 0
        assert registry.get("one") is None
        with pytest.raises(KeyError):
            registry["one"]


async def test_a_name_is_taken_once() -> None:
    async with system() as actors:
        registry = actors.registry
        registry.register("x", actors.start(Probe()))
        with pytest.raises(ValueError, match="'x' is taken"):
            registry.register("x", actors.start(Probe()))


async def test_an_ended_actor_gets_no_name() -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        ref.stop()
        await settle()
        with pytest.raises(ValueError, match="has ended"):
            actors.registry.register("x", ref)


async def test_a_name_can_be_freed_and_passed_on() -> None:
    async with system() as actors:
        registry = actors.registry
        one, two = actors.start(Probe()), actors.start(Probe())
        registry.register("x", one)
        registry.unregister("x")
        registry.unregister("unknown")
        registry.register("x", two)
        one.stop()
        await settle()
        assert registry["x"] is two


async def test_a_name_is_free_only_when_teardown_is_over(autojump_clock: MockClock) -> None:
    async with system() as actors:
        registry = Registry()
        ref = await actors.start_child(waiter([], "w", Restart.TEMPORARY, teardown=1))
        registry.register("x", ref)
        ref.stop()
        await settle()
        assert registry["x"] is ref
        await trio.sleep(2)
        assert "x" not in registry
