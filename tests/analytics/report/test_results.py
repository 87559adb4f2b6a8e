from trunkline.analytics.report.results import Top


def test_a_table_is_there_when_it_would_have_rows() -> None:
    assert Top([1], 1)
    assert not Top()
