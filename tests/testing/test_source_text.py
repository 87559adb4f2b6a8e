"""Functions of a test are shown as the test has them."""

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from trunkline import testing
from trunkline.testing.expecting import Expected
from trunkline.testing.published import Published
from trunkline.testing.source_text import WIDTH, written_as


def named(payload: bytes) -> bool:
    return not payload


class Judge:
    def __repr__(self) -> str:
        return "the judge"

    def __call__(self, payload: bytes) -> bool:
        return False


# fmt: off
TWO: list[Callable[[Any], object]] = [lambda x: x == b"\xc3", lambda größe: größe if größe else "é"]
SPREAD: Callable[[Any], object] = (lambda x: x.startswith(
    b"x"
))
# fmt: on


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (named, "named"),
        (Judge(), "the judge"),
        (partial(named, b""), f"functools.partial({named!r}, b'')"),
        (TWO[0], r'`lambda x: x == b"\xc3"`'),
        (TWO[1], '`lambda größe: größe if größe else "é"`'),
        (SPREAD, '`lambda x: x.startswith( b"x" )`'),
        (lambda: [lambda: 1], "`lambda: [lambda: 1]`"),
        (eval("lambda: 1"), "<lambda>"),
    ],
    ids=["function", "object", "partial", "bytes", "letters", "lines", "nested", "no file"],
)
def test_a_lambda_is_its_text_and_another_function_its_name(function: Callable[..., object], text: str) -> None:
    assert written_as(function) == text


LONG: Callable[[Any], object] = lambda x: (
    x in ("one of a long list", "two of a long list", "three of a long list", "four of a long list", "the last one")
)


def test_a_long_one_is_cut() -> None:
    text = written_as(LONG)
    assert text.startswith("`lambda x: ( ")
    assert len(text) == len("`…`") + WIDTH


IS_Y: Callable[[bytes], bool] = lambda payload: payload == b"y"
IS_QOS_1: Callable[[Published], bool] = lambda message: message.qos == 1

IS_NEVER: Callable[[Published], bool] = lambda message: message.topic == "never"


def test_expectations_have_it() -> None:
    assert str(Expected("t", payload=IS_Y, predicate=IS_QOS_1)) == (
        " on 't' with payload `lambda payload: payload == b\"y\"` for which `lambda message: message.qos == 1` is true"
    )


def test_the_source_is_read_once_and_only_for_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse

    def counted(source: str) -> ast.Module:
        parsed.append(source)
        return parse(source)

    with monkeypatch.context() as patch, testing.broker() as broker:  # pytest parses, too
        patch.setattr(ast, "parse", counted)
        broker.wait_until(lambda: True)
        broker.publish("t", b"x")
        broker.wait_for("t", payload=b"x")
        before = len(parsed)
        for _ in range(10):
            broker.publish("t", b"y")
        with pytest.raises(TimeoutError, match="never"):
            broker.wait_for("t", predicate=IS_NEVER, timeout=0)
    assert (before, len(parsed)) == (0, 1)
