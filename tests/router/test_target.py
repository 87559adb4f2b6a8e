"""`trunkline.router.target` and `trunkline.router.options`."""

from random import Random

from tests.router.subscribers import Client
from trunkline.router import Options, Target
from trunkline.router.options import intern_options
from trunkline.router.shared import Group, ShareStrategy, make_group
from trunkline.router.target import Receivers, Route, combine, make_target


def test_equal_options_are_one_object() -> None:
    assert intern_options(Options(qos=1)) is intern_options(Options(qos=1))
    assert intern_options(Options(qos=1)) is not intern_options(Options(qos=2))


def test_options_with_an_identifier_are_not_kept() -> None:
    options = Options(identifier=12345)
    assert intern_options(options) is options
    assert intern_options(Options(identifier=12345)) is not options


def test_one_target_is_not_combined() -> None:
    target = make_target(Client("c"), Options(qos=1), 1)
    assert combine([target]) is target


def test_a_plain_target_holds_no_serial() -> None:
    assert make_target(Client("c"), Options(), 7).serial == 0
    assert make_target(Client("c"), Options(identifier=1), 7).serial == 7
    assert not hasattr(Target(Client("c"), Options()), "__dict__")


def test_an_identifier_twice_comes_twice() -> None:
    # The client may use one for several subscriptions; it learns that both matched.
    client = Client("c")
    merged = combine([make_target(client, Options(identifier=4), serial) for serial in (2, 1)])
    assert merged.identifiers == (4, 4)


class Keeper:
    def __init__(self, receiver: str) -> None:
        self.receiver = receiver

    def refusal(self, publication: object) -> str:
        raise AssertionError

    def take(self, publication: object, sequence: int) -> None:
        raise AssertionError


def test_a_route_beside_those_that_may_refuse() -> None:
    here = make_target(Client("here"), Options(), 1)
    behind = make_target(Client("behind"), Options(qos=1), 2, behind=True)
    receiver, keeper = Keeper("stream s"), Keeper("")
    group: Group[Client] = make_group(ShareStrategy.RANDOM, "g", "f", Random(1))
    route = Route(Receivers([here, behind]), (group,), (receiver, keeper)).beside_receivers()
    assert (route.targets, route.behind, route.groups, route.sinks) == ((here,), (behind,), (group,), (keeper,))
    assert route.durable


def test_repr_names_the_client() -> None:
    assert repr(make_target(Client("c"), Options(qos=2), 1)) == "<Target 'c' qos 2>"
