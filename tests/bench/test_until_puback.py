"""How long the way of a stored message is, counted."""

from bench.until_puback import cost


async def test_the_way_of_a_stored_message_is_short() -> None:
    in_memory, stored = await cost(stored=False), await cost(stored=True)
    assert sum(in_memory.calls.values()) <= 22
    assert sum(stored.calls.values()) <= 90
    assert not [name for name in in_memory.calls if name.startswith("store/")]
    assert "broker/committer.py" in stored.calls
