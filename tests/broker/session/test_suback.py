"""What a SUBACK says of each filter."""

from types import SimpleNamespace
from typing import Any

import pytest

from trunkline.broker.session.suback import SubscriptionAnswer
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.reasons import Reason


def answer(channel: Any = None) -> SubscriptionAnswer:
    return SubscriptionAnswer(ClientInfo("c"), channel, 7, [Reason.SUCCESS] * 3)


def test_filters_keep_their_places() -> None:
    made = answer()
    made.accept(0, "a")
    made.refuse(1, Reason.NOT_AUTHORIZED, "not this one")
    made.accept(2, "b")
    assert (made.filters, made.places) == (["a", "b"], [0, 2])
    assert made.reasons == [Reason.SUCCESS, Reason.NOT_AUTHORIZED, Reason.SUCCESS]


def test_the_first_explanation_is_that_of_all() -> None:
    made = answer()
    for place, text in enumerate(("", "first", "second")):
        made.refuse(place, Reason.NOT_AUTHORIZED, text)
    assert made.text == "first"


@pytest.mark.parametrize(
    ("wants", "properties"),
    [(True, {"reason_string": "why"}), (False, {}), (None, {})],
    ids=["yes", "no", "away"],
)
def test_who_gets_an_explanation(wants: bool | None, properties: dict[str, str]) -> None:
    """[MQTT-3.1.2-29]"""
    made = answer(None if wants is None else SimpleNamespace(problem_information=wants))
    made.refuse(0, Reason.NOT_AUTHORIZED, "why")
    assert made.properties == properties
