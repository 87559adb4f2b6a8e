"""Topics and filters of few levels with few names, so that they meet often."""

from hypothesis import strategies as st

names = st.sampled_from(["a", "b", "", "$x"])

topics = st.lists(names, min_size=1, max_size=4).map("/".join).filter(bool)


def _filter(levels: list[str], more: bool) -> str:
    return "/".join([*levels, "#"] if more else levels)


filters = st.builds(_filter, st.lists(names | st.just("+"), min_size=0, max_size=4), st.booleans()).filter(bool)

wildcard_filters = filters.filter(lambda filter: "+" in filter or "#" in filter)
