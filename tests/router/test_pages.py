"""What is subscribed, in pages that stand changes."""

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


def test_every_subscription_comes_once(router: Router[Client]) -> None:
    rows = [(filter, target.subscriber.client_id) for filter, target in router.all()]
    assert len(rows) == router.subscriptions == 100
    assert rows == sorted(set(rows))


def test_changes_between_pages(router: Router[Client]) -> None:
    page = router.page("all", 3)
    assert page == ["own/00", "own/00/+", "own/01"]
    (gone,) = router.targets("own/01")
    router.unsubscribe(gone.subscriber, "own/01")
    router.subscribe(Client("c00a"), "own/00", Options())
    router.subscribe(Client("c00a"), "own/01a", Options())
    # Even the filter of the cursor may be gone.
    assert router.page(page[-1], 3) == ["own/01/+", "own/01a", "own/02"]


def test_filters(router: Router[Client]) -> None:
    assert router.page(limit=3) == ["$share/g/all", "all", "own/00"]
    assert router.page(after="own/00", limit=2) == ["own/00/+", "own/01"]
    assert len(router.page(limit=100)) == router.filters == 52


def test_targets_of_a_filter(router: Router[Client]) -> None:
    assert [member.subscriber.client_id for member in router.targets("$share/g/all")][:2] == ["c00", "c01"]
    assert router.targets("$share/none/all") == router.targets("none") == []


def test_pages_over_more_than_one_walk() -> None:
    router: Router[Client] = Router()
    client = Client("c")
    for number in range(2500):
        router.subscribe(client, str(number), Options())
    assert len(list(router.all())) == 2500
