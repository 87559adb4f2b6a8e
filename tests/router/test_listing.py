"""`trunkline.router.listing`: pages that stand changes."""

import pytest

from tests.router.subscribers import Client
from trunkline.router import Options, Router


@pytest.fixture
def router() -> Router[Client]:
    router: Router[Client] = Router()
    for number in range(25):
        client = Client(f"c{number:02}")
        router.subscribe(client, "all", Options(qos=1))
        router.subscribe(client, f"own/{number:02}", Options())
        router.subscribe(client, f"own/{number:02}/+", Options())
        router.subscribe(client, "$share/g/all", Options(qos=2))
    return router


def all_rows(router: Router[Client], limit: int) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    after = ("", "")
    while page := router.listing.subscriptions(after, limit):
        assert len(page) <= limit
        rows += [(row.filter, row.client_id) for row in page]
        after = rows[-1]
    return rows


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_every_subscription_comes_once(router: Router[Client], limit: int) -> None:
    rows = all_rows(router, limit)
    assert len(rows) == router.subscriptions == 100
    assert rows == sorted(set(rows))


def test_a_row(router: Router[Client]) -> None:
    row = router.listing.subscriptions(("all", "c03"), 1)[0]
    assert (row.filter, row.client_id, row.options) == ("all", "c04", Options(qos=1))
    assert row.subscriber.client_id == "c04"


def test_changes_between_pages(router: Router[Client]) -> None:
    known = {row.client_id: row.subscriber for row in router.listing.subscriptions(limit=25)}
    page = router.listing.subscriptions(("$share/g/all", "c24"), 10)
    assert [row.client_id for row in page] == [f"c{number:02}" for number in range(10)]
    cursor = (page[-1].filter, page[-1].client_id)
    for client_id in ("c08", "c09", "c10"):
        client = known[client_id]
        assert isinstance(client, Client)
        router.unsubscribe(client, "all")
    router.subscribe(Client("c00a"), "all", Options())
    router.subscribe(Client("c11a"), "all", Options())
    page = router.listing.subscriptions(cursor, 3)
    assert [row.client_id for row in page] == ["c11", "c11a", "c12"]
    # Even the filter of the cursor may be gone.
    for row in router.listing.subscriptions(("all", ""), 100):
        client = row.subscriber
        assert isinstance(client, Client)
        router.unsubscribe(client, "all")
    assert router.listing.subscriptions(cursor, 1)[0].filter == "own/00"


def test_one_client_id_twice_is_not_lost() -> None:
    router: Router[Client] = Router()
    for client_id in ("a", "b", "b", "c"):
        router.subscribe(Client(client_id), "f", Options())
    page = router.listing.subscriptions(limit=2)
    assert [row.client_id for row in page] == ["a", "b", "b"]
    assert [row.client_id for row in router.listing.subscriptions(("f", "b"), 2)] == ["c"]


def test_filters(router: Router[Client]) -> None:
    listing = router.listing
    assert listing.filters(limit=3) == ["$share/g/all", "all", "own/00"]
    assert listing.filters(after="own/00", limit=2) == ["own/00/+", "own/01"]
    assert len(list(listing)) == router.filters == 52


def test_targets_of_a_filter(router: Router[Client]) -> None:
    assert [member.subscriber.client_id for member in router.targets("$share/g/all")][:2] == ["c00", "c01"]
    assert router.targets("$share/none/all") == router.targets("none") == []


def test_pages_over_more_than_one_walk() -> None:
    router: Router[Client] = Router()
    client = Client("c")
    for number in range(2500):
        router.subscribe(client, str(number), Options())
    assert len(list(router.listing)) == 2500
    assert len(list(router.export())) == 2500
