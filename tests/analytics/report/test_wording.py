from datetime import datetime, timedelta, timezone

import pytest

from trunkline.analytics.report import wording

GAP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("sensor 1", "sensor 1"),
        ("Grüße/東京", "Grüße/東京"),
        ("a\u202eb", "a\\u202eb"),
        ("a\x00\n\x1b[31m", "a\\x00\\n\\x1b[31m"),
        ("a\N{NO-BREAK SPACE}b\u2028", "a\\xa0b\\u2028"),
        ("", "(empty)"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 80 + "… (81 characters)"),
    ],
)
def test_names_show_what_is_in_them(text: str, seen: str) -> None:
    assert wording.name(text) == seen


@pytest.mark.parametrize(
    ("number", "short"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (999.6, "1k"),
        (1234, "1.23k"),
        (12_345, "12.3k"),
        (100_000, "100k"),
        (2e15, "2000T"),
    ],
)
def test_short_numbers(number: float, short: str) -> None:
    assert wording.short(number) == short


def test_sizes() -> None:
    assert [wording.size(number) for number in (0, 999, 1000, 2_500_000)] == [
        f"0{GAP}B",
        f"999{GAP}B",
        f"1{GAP}kB",
        f"2.5{GAP}MB",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, f"0{GAP}µs"),
        (0.000250, f"250{GAP}µs"),
        (0.0385, f"38.5{GAP}ms"),
        (90, f"90{GAP}s"),
        (1800, f"30{GAP}min"),
        (86_400, f"24{GAP}h"),
        (30 * 86_400, f"30{GAP}d"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert wording.duration(seconds) == words


def test_moments_are_told_in_utc() -> None:
    assert wording.moment(datetime(2025, 6, 1, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))) == "2025-05-31 23:02:03"


def test_a_share_is_all_or_nothing_only_if_it_is() -> None:
    assert [wording.share(part, 1_000_000) for part in (0, 1, 333_333, 999_999, 1_000_000)] == [
        "0%",
        "under 0.001%",
        "33.333%",
        "99.999%",
        "100%",
    ]
    assert wording.share(0, 0) == "–"


def test_counts() -> None:
    assert wording.count(1, "client") == "1 client"
    assert wording.count(1234, "reply", "replies") == "1\N{NARROW NO-BREAK SPACE}234 replies"
