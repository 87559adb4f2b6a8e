"""The declaration of the points agrees with the attributes of Hooks and with the documentation."""

from pathlib import Path
from typing import get_type_hints

import pytest

from trunkline.hooks import Hooks
from trunkline.hooks.points import POINTS, Decide, Notify, Point, Transform, find


def test_hooks_has_an_attribute_a_point_and_no_other() -> None:
    assert set(get_type_hints(Hooks)) == {point.attribute for point in POINTS}
    hooks = Hooks()
    assert all(getattr(hooks, point.attribute) == () for point in POINTS)


def test_names_are_unique_and_found() -> None:
    assert len({point.name for point in POINTS}) == len(POINTS) == 29
    assert all(find(point.name) is point for point in POINTS)


def test_what_can_wait() -> None:
    assert {point.name for point in POINTS if point.waits} == {
        "client.authenticate",
        "client.check_acl",
        "client.enhanced_authenticate",
        "client.subscribe",
        "client.unsubscribe",
    }


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_every_point_is_complete(point: Point) -> None:
    assert point.kind == {Notify: "notify", Transform: "transform", Decide: "decide"}[type(point)]
    assert point.arguments
    assert point.doc.endswith(".")
    assert repr(point).startswith(point.name + "(")
    if isinstance(point, Transform):
        assert point.arguments[0] == "client"


def test_the_document_has_the_table_of_points() -> None:
    rows = ["| point | kind | called with | when |", "|---|---|---|---|"]
    for point in POINTS:
        kind = point.kind + ", may be async" * point.waits + ", takes publications" * (point.publication is not None)
        rows.append(f"| `{point.name}` | {kind} | `{point.words}` | {point.doc} |")
    table = "\n".join(rows)
    text = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
    assert table in text, table
