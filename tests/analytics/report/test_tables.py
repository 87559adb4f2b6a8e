from trunkline.analytics.report.tables import COUNT, MAX_ROWS, NAME, NUMBER, Cell, table


def test_a_column_shows_an_attribute_or_what_a_function_returns() -> None:
    made = table("t", "T", [3j, 1 + 5j], ("Name", NAME, str), ("Count", NUMBER, "imag"))
    assert list(made.rows) == [(Cell("3j"), Cell("3")), (Cell("(1+5j)"), Cell("5"))]
    assert (made.headings, made.numeric) == (["Name", "Count"], [False, True])


def test_bars_are_shares_of_the_largest() -> None:
    made = table("t", "T", [8, 2], ("Count", COUNT, int))
    assert list(made.rows) == [(Cell("8", 100),), (Cell("2", 25),)]
    assert list(table("t", "T", [0], ("Count", COUNT, int)).rows) == [(Cell("0"),)]


def test_what_is_missing_is_a_dash() -> None:
    assert list(table("t", "T", [None], ("Count", NUMBER, lambda row: row)).rows) == [(Cell("–"),)]


def test_only_the_first_rows_are_kept() -> None:
    made = table("t", "T", range(100), ("Name", NAME, str))
    assert (len(made.rows), made.total) == (MAX_ROWS, 100)
    assert not table("t", "T", [], ("Name", NAME, str)).rows
