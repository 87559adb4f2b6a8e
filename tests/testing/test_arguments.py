"""A misspelt argument is named with the method that the test has called."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from trunkline import testing
from trunkline.testing.broker import BrokerProxy
from trunkline.testing.faults import Faults


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b: b.wait_for("a", payloads="x"), r"wait_for\(\) has no argument 'payloads'; did you mean payload\?"),
        (lambda b: b.watch("a", payloads="x"), r"watch\(\) has no argument 'payloads'; did you mean payload\?"),
        (lambda b: b.assert_delivered("a", too="x"), r"assert_delivered\(\) has no argument 'too'; did you mean to\?"),
        (
            lambda b: b.restart(keep=True),
            r"restart\(\) has no argument 'keep'; it takes graceful, keep_retained, keep_sessions, ",
        ),
        (lambda b: b.publish("a", retained=True), r"publish\(\) has no argument 'retained'; did you mean retain\?"),
        (lambda b: b.metrics(x=1), r"metrics\(\) has no argument 'x'; it takes none by name"),
        (lambda b: b.faults.drop("PUBACK", clyent="a"), r"drop\(\) has no argument 'clyent'; did you mean client\?"),
        (lambda b: b.faults.refuse_connect("BANNED", time=1), r"refuse_connect\(\) .* 'time'; did you mean times\?"),
    ],
)
def test_the_nearest_is_suggested(call: Callable[[Any], object], words: str) -> None:
    with testing.broker() as b, pytest.raises(TypeError, match=f"^{words}"):
        call(b)


@pytest.mark.parametrize("kind", [BrokerProxy, Faults])
async def test_each_method_names_itself(kind: type) -> None:
    async with testing.broker() as b:
        owner = b if kind is BrokerProxy else b.faults
        properties = {name for name, found in inspect.getmembers(kind) if isinstance(found, property)}
        methods = [name for name in dir(kind) if not name.startswith("_") and name not in properties]
        assert len(methods) > 8
        for name in methods:
            with pytest.raises(TypeError, match=rf"\b{name}\(\) (has no|got an unexpected keyword) argument 'absurd'"):
                getattr(owner, name)(absurd=1)
