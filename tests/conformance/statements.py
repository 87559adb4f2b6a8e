"""All numbered statements of both specifications, and how a test says which of them it shows."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.conformance.statement import Statement
from tests.conformance.statements_v5 import V5
from tests.conformance.statements_v311 import V311

STATEMENTS: dict[str, Statement] = {statement.id: statement for statement in (*V5, *V311)}

_Test = TypeVar("_Test", bound=Callable[..., object])


def shows(*ids: str) -> Callable[[_Test], _Test]:
    """Says which statements a test shows. They become part of the test's id: `pytest -k 3.1.2-4` finds them."""
    unknown = [id for id in ids if id not in STATEMENTS]
    if unknown:
        raise ValueError(f"no such statement: {', '.join(unknown)}")

    def decorate(test: _Test) -> _Test:
        named: _Test = pytest.mark.parametrize((), [pytest.param(id=",".join(id.partition("-")[2] for id in ids))])(
            test
        )
        named.shows = ids  # type: ignore[attr-defined]
        return named

    return decorate
