import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

from trunkline import testing
from trunkline.testing.awaiting import Unawaited
from trunkline.testing.portal import Proxy, maybe_async


def proxies() -> Iterator[type]:
    """All that a test gets from a broker."""
    for module in pkgutil.iter_modules(testing.__path__):
        for _, found in inspect.getmembers(import_module(f"trunkline.testing.{module.name}"), inspect.isclass):
            if issubclass(found, Proxy):
                yield found


def test_what_is_awaited_knows_whether_it_was() -> None:
    """A public method that waits is a `maybe_async`; a plain coroutine function would be true, and forgotten."""
    seen: set[str] = set()
    for proxy in proxies():
        for name, method in vars(proxy).items():
            if isinstance(method, maybe_async):
                seen.add(name)
            elif inspect.iscoroutinefunction(method):
                assert name.startswith("_") or (proxy.__name__, name) == ("Watch", "forward"), (proxy, name)
    assert {"advance", "next", "wait_for", "wait_until", "triggered", "restart", "metrics", "enable"} <= seen


async def test_each_of_them_is_an_error_when_it_is_not_awaited(autojump_clock: object) -> None:
    arguments = {"advance": (1,), "wait_until": (bool,), "enable": ("bans",), "disable": ("bans",), "reload": ("bans",)}
    async with testing.broker() as broker:
        fault, watch = broker.faults.drop("PUBACK").optional(), broker.watch("t")
        for owner in (broker, broker.clock, broker.plugins, fault, watch):
            names = [name for name in dir(type(owner)) if isinstance(inspect.getattr_static(owner, name), maybe_async)]
            for name in names:
                waiting = getattr(owner, name)(*arguments.get(name, ()))
                assert isinstance(waiting, Unawaited)
                with pytest.raises(AssertionError, match="neither true nor false"):
                    bool(waiting)
                with pytest.raises(AttributeError, match=rf"^{name}\(\) in .* has no 'payload' before it is awaited"):
                    waiting.payload  # type: ignore[attr-defined]  # noqa: B018
                with pytest.raises(TypeError, match=rf"^{name}\(\) in .* has no items before it is awaited"):
                    waiting[0]  # type: ignore[index]
                getattr(owner, name)(*arguments.get(name, ()))
                with pytest.raises(AssertionError, match=rf"^{name}\(\) in .* was never awaited"):
                    broker.check()
                broker.check()  # it is said once
        watch.close()


@pytest.mark.parametrize("how", ["create_task", "gather", "wait_for", "shield"])
def test_asyncio_takes_it_as_a_coroutine(how: str) -> None:
    import asyncio

    async def main() -> None:
        async with testing.broker() as broker:
            broker.publish("t", "x")
            if how == "create_task":
                found = await asyncio.create_task(broker.wait_for("t"))
            elif how == "gather":
                (found,) = await asyncio.gather(broker.wait_for("t"))
            elif how == "wait_for":
                found = await asyncio.wait_for(broker.wait_for("t"), 60)
            else:
                found = await asyncio.shield(broker.wait_for("t"))
            assert found.payload == b"x"

    asyncio.run(main())


async def test_trio_takes_it_as_an_async_function(autojump_clock: object) -> None:
    import trio

    async with testing.broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(broker.wait_for, "t")
        broker.publish("t")
