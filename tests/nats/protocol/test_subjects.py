import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.nats.errors import BadSubject
from trunkline.nats.protocol.subjects import (
    check_name,
    check_pattern,
    check_queue,
    check_subject,
    covers,
    has_wildcard,
    matches,
)

tokens = st.sampled_from(["a", "b", "*", ">"])
subjects = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(".".join)
patterns = st.lists(tokens, min_size=1, max_size=4).filter(lambda parts: ">" not in parts[:-1]).map(".".join)


@pytest.mark.parametrize("subject", ["a", "a.b", "$JS.API.INFO", "_INBOX.x.1", "a*", "a>b", "ä.ö", "a-b/c", "~"])
def test_subjects(subject: str) -> None:
    check_subject(subject)
    check_pattern(subject)
    assert not has_wildcard(subject)


@pytest.mark.parametrize("pattern", ["*", ">", "a.*", "*.a", "a.*.b", "a.>", "*.>", "a.*.>"])
def test_patterns(pattern: str) -> None:
    check_pattern(pattern)
    assert has_wildcard(pattern)
    with pytest.raises(BadSubject, match="nothing can be published to it"):
        check_subject(pattern)


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("", "the subject is empty"),
        (".", r"'\.' has an empty token"),
        ("a.", r"'a\.' has an empty token"),
        (".a", r"'\.a' has an empty token"),
        ("a..b", r"'a\.\.b' has an empty token"),
        ("a b", "'a b' has ' ' at 1"),
        ("a\tb", r"has '\\t' at 1"),
        ("a\r\nPUB x 0", r"has '\\r' at 1"),
        ("ab\n", r"has '\\n' at 2"),
        ("\0", r"has '\\x00' at 0"),
        ("a\x7f", r"has '\\x7f' at 1"),
        ("a\x0cb", r"has '\\x0c' at 1"),
        ("a" * 2001, "a subject of 2001 characters, 2000 have room"),
        ("a\ud800", r"has '\\ud800' at 1"),
    ],
)
def test_what_is_no_subject(subject: str, why: str) -> None:
    for check in (check_subject, check_pattern):
        with pytest.raises(BadSubject, match=why):
            check(subject)


@pytest.mark.parametrize("pattern", [">.a", "a.>.b", ">.>", "*.>.*"])
def test_the_rest_comes_last(pattern: str) -> None:
    with pytest.raises(BadSubject, match="> is not the last token"):
        check_pattern(pattern)


@pytest.mark.parametrize("name", ["a", "A-b_9", "größe", "$x"])
def test_names(name: str) -> None:
    check_name(name, "stream")


@pytest.mark.parametrize("name", ["a.b", "*", "a>", "a b", "a\n", "a/b", "a\\b", "\x7f"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadSubject, match="the name of a stream has no white space"):
        check_name(name, "stream")


def test_an_empty_name() -> None:
    with pytest.raises(BadSubject, match="the name of a consumer is empty"):
        check_name("", "consumer")


def test_queue_groups() -> None:
    for queue in ("q", "a.b", "*", "ä"):
        check_queue(queue)
    for queue in ("", "a b", "a\r\n", "\ud800"):
        with pytest.raises(BadSubject, match="the name of a queue group"):
            check_queue(queue)


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("*", "$a", True),
        (">", "a.b.c", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.>", "b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("*.b", "a.b", True),
        ("*.>", "a", False),
        ("a*", "ab", False),
    ],
)
def test_matches(pattern: str, subject: str, is_match: bool) -> None:
    assert matches(pattern, subject) == is_match


@given(patterns, patterns, subjects)
def test_a_pattern_covers_what_it_matches(wide: str, narrow: str, subject: str) -> None:
    if covers(wide, narrow) and matches(narrow, subject):
        assert matches(wide, subject)


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("a", "a", True),
        (">", "a.*.>", True),
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("a.b", "a.*", False),
        ("a.*", "a.>", False),
        ("a.>", "a.*", True),
        ("a.>", "a.>", True),
        ("a.>", "a", False),
        ("*.>", ">", False),
        ("a.*.>", "a.>", False),
        ("a.>", "a.b.>", True),
        ("*.*", "a", False),
        ("*", "a.b", False),
    ],
)
def test_covers(wide: str, narrow: str, is_covered: bool) -> None:
    assert covers(wide, narrow) == is_covered
