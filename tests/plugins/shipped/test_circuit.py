"""A service that fails is left alone, and tried again."""

from trunkline.plugins.shipped.circuit import Circuit


def test_it_opens_after_failures_in_a_row_only() -> None:
    circuit = Circuit(3, 10.0)
    assert [circuit.failed(0.0) for _ in range(2)] == [False, False]
    assert circuit.succeeded() is False
    assert [circuit.failed(0.0) for _ in range(3)] == [False, False, True]
    assert not circuit.may_ask(9.9)


def test_one_tries_whether_it_is_over() -> None:
    circuit = Circuit(1, 10.0)
    circuit.failed(0.0)
    assert circuit.may_ask(10.0)
    assert not circuit.may_ask(10.1)
    assert circuit.failed(11.0) is False
    assert not circuit.may_ask(20.9)
    assert circuit.may_ask(21.0)
    assert circuit.succeeded() is True
    assert circuit.may_ask(21.0)
    assert circuit.may_ask(21.0)


def test_one_that_never_reports_is_not_waited_for_longer_than_the_pause() -> None:
    circuit = Circuit(1, 10.0)
    circuit.failed(0.0)
    assert circuit.may_ask(10.0)
    assert not circuit.may_ask(19.9)
    assert circuit.may_ask(20.0)
