from trunkline.analytics.report.tables import MOST_ROWS, Cell, Column, table


def test_bars_are_shares_of_the_largest() -> None:
    made = table("t", "T", Column("Name", ["a", "b"]), Column("Count", ["8", "2"], [8, 2], number=True))
    assert made.rows == [[Cell("a"), Cell("8", True, 100)], [Cell("b"), Cell("2", True, 25)]]
    assert list(made.numeric) == [False, True]


def test_only_the_first_rows_are_kept() -> None:
    made = table("t", "T", Column("Name", [str(number) for number in range(100)]))
    assert (len(made.rows), made.total) == (MOST_ROWS, 100)
    assert table("t", "T", Column("Name", ["a"]), total=7).total == 7


def test_zeros_and_no_rows_have_no_bars() -> None:
    made = table("t", "T", Column("Count", ["0"], [0], number=True))
    assert made.rows == [[Cell("0", True, None)]]
    assert list(table("t", "T", Column("Count", [], [], number=True)).numeric) == [False]
