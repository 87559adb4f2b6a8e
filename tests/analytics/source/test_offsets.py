import pytest

from trunkline.analytics.source.offsets import farthest, parse
from trunkline.events.layout import LogError


def test_equal_offsets_are_equal_texts() -> None:
    one = parse('{"n2@7": 5, "n1@1763739192123": 12}')
    other = parse(' {"n1@1763739192123":12,"n2@7":5}')
    assert list(one) == ["n1@1763739192123", "n2@7"]
    assert list(other) == list(one)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "expected an object"),
        ("7", "expected an object"),
        ("{", "not JSON"),
        ('{"topic": {"0": 5}}', "'topic' is not a node of an event log: the form is n1@1763739192123"),
        ('{"n1@x": 5}', "'n1@x' is not a node of an event log"),
        ('{"n1@1": -1}', "n1@1: expected the number of a row, 0 or more, not -1"),
        ('{"n1@1": true}', "n1@1: expected the number of a row, 0 or more, not true"),
        ('{"n1@1": 1.5}', "not 1.5"),
    ],
)
def test_what_is_no_offset_is_told(text: str, complaint: str) -> None:
    with pytest.raises(LogError) as caught:
        parse(text)
    assert complaint in str(caught.value)


def test_an_offset_never_goes_back() -> None:
    assert farthest({"b@1": 5, "a@1": 9}, {"b@1": 7, "a@1": 3, "c@1": 0}) == {"a@1": 9, "b@1": 7, "c@1": 0}


def test_nothing_is_an_offset() -> None:
    assert parse("{}") == {}
