"""How long the way of a stored message is, counted."""

from bench.until_puback import cost


async def test_the_way_of_a_stored_message_is_short() -> None:
    in_memory, stored = await cost(stored=False), await cost(stored=True)
    assert in_memory.calls.total() <= 22
    assert stored.calls.total() <= 95
    assert not [name for name in in_memory.calls if name.startswith("store/")]
    assert "broker/committer.py" in stored.calls
