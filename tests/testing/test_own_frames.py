"""Lines of the package that a test's author need not see."""

import linecache
from contextlib import nullcontext
from typing import Any

import pytest

from trunkline.testing.own_frames import is_raised_here, leave_out_own

OURS: str = """
from contextlib import contextmanager

def refuse(text):
    raise ValueError(
        text
    )

def fail():
    return {}["nothing"]

@contextmanager
def block(text):
    refuse(text)
    yield

def call(function):
    function()
"""


@pytest.fixture
def ours() -> Any:
    """A module of the package."""
    name = "<ours>"
    linecache.cache[name] = len(OURS), None, OURS.splitlines(keepends=True), name
    module: dict[str, Any] = {"__name__": "trunkline.some.module"}
    exec(compile(OURS, name, "exec"), module)  # noqa: S102
    yield module
    del linecache.cache[name]


def names(error: BaseException) -> list[str]:
    found, entry = list[str](), error.__traceback__
    while entry is not None:
        found.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    return found


def own_call(ours: Any, kind: str) -> None:
    if kind == "block":
        with ours["block"]("no"):
            pass
    ours[kind](*["no"] * (kind == "refuse"))


@pytest.mark.parametrize("kind", ["refuse", "block"])
def test_what_is_raised_by_intent_ends_at_the_line_of_the_test(ours: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="no") as caught:
        own_call(ours, kind)
    assert is_raised_here(caught.value)
    leave_out_own(caught.value)
    assert names(caught.value)[-1] == "own_call"


def test_a_fault_of_the_package_keeps_all_lines(ours: Any) -> None:
    with pytest.raises(KeyError) as caught:
        own_call(ours, "fail")
    assert not is_raised_here(caught.value)
    leave_out_own(caught.value)
    assert names(caught.value)[-2:] == ["own_call", "fail"]


def test_what_the_test_raises_below_keeps_its_lines(ours: Any) -> None:
    def mine() -> None:
        raise LookupError

    with pytest.raises(LookupError) as caught:
        ours["call"](mine)
    leave_out_own(caught.value)
    assert names(caught.value)[-2:] == ["call", "mine"]


def test_what_the_test_calls_below_ends_at_its_last_line(ours: Any) -> None:
    def mine() -> None:
        ours["refuse"]("no")

    with pytest.raises(ValueError, match="no") as caught:
        ours["call"](mine)
    leave_out_own(caught.value)
    assert names(caught.value)[-2:] == ["call", "mine"]


def test_groups_are_looked_into(ours: Any) -> None:
    with pytest.raises(ValueError, match="no") as caught:
        own_call(ours, "refuse")
    leave_out_own(ExceptionGroup("both", [ExceptionGroup("one", [caught.value])]))
    assert names(caught.value)[-1] == "own_call"


def test_an_error_that_nobody_has_raised() -> None:
    with nullcontext():
        assert not is_raised_here(ValueError("no"))
    leave_out_own(ValueError("no"))
