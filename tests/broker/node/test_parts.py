"""Each part has what it needs when it is made."""

import pytest

from tests.broker.disk import Disk
from tests.broker.room import room


async def test_one_committer_for_all_that_is_stored() -> None:
    async with Disk().broker() as life:
        node = life.node
        assert node.storing is not None
        committer, backlogs = node.storing.committer, node.storing.backlogs
        assert node.services.committer is node.services.pubsub.committer is backlogs.committer is committer
        assert node.services.backlogs is backlogs
        assert node.plugin_stores._committer is node.stream_keeper._committer is committer  # pyright: ignore[reportPrivateUsage]


async def test_without_a_store_nothing_waits_for_a_commit() -> None:
    async with room() as here:
        services = here.node.services
        assert (here.node.storing, services.committer, services.backlogs, services.pubsub.committer) == (None,) * 4


@pytest.mark.parametrize("part", ["trace", "stream_keeper"])
async def test_what_few_need_is_made_for_the_first_one_that_asks(part: str) -> None:
    async with room() as here:
        assert part not in vars(here.node)
        assert getattr(here.node, part) is getattr(here.node, part)
