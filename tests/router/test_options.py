from trunkline.router.options import Options, intern_options


def test_equal_options_are_one_object() -> None:
    first = intern_options(Options(qos=1, no_local=True, retain_handling=2))
    assert intern_options(Options(qos=1, no_local=True, retain_handling=2)) is first
    assert intern_options(Options(qos=2, no_local=True, retain_handling=2)) is not first


def test_options_with_an_identifier_are_not_kept() -> None:
    """Clients make them up: keeping them would let a client fill the memory."""
    first, second = Options(identifier=7), Options(identifier=7)
    assert intern_options(first) is first
    assert intern_options(second) is second
