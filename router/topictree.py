"""Topic names, matched against a topic filter: the way round of retained messages.

The cost of a match is the number of topics that match (for a `+` inside a filter, the number of levels it stands for).
"""

from collections.abc import Iterator


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        #: The whole topic name if it ends here.
        self.topic: str | None = None


class TopicTree:
    """A set of topic names."""

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0
        #: Number of nodes beside the root.
        self.nodes = 0

    def __len__(self) -> int:
        return self._size

    def add(self, topic: str) -> None:
        node = self._root
        for level in topic.split("/"):
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
                self.nodes += 1
            node = child
        if node.topic is None:
            node.topic = topic
            self._size += 1

    def discard(self, topic: str) -> None:
        """Take the topic out, with every node that only it needed."""
        path = [self._root]
        levels = topic.split("/")
        for level in levels:
            children = path[-1].children
            child = children.get(level) if children is not None else None
            if child is None:
                return
            path.append(child)
        if path[-1].topic is None:
            return
        path[-1].topic = None
        self._size -= 1
        while levels:
            node = path.pop()
            if node.children is not None or node.topic is not None:
                return
            parent = path[-1]
            assert parent.children is not None
            del parent.children[levels.pop()]
            self.nodes -= 1
            if not parent.children:
                parent.children = None

    def match(self, filter: str) -> Iterator[str]:
        """The topics that match, found while they are asked for.

        The tree may change between two of them: topics that were taken out meanwhile may still come, those added
        meanwhile may or may not.
        """
        levels = filter.split("/")
        last = len(levels)
        # What is left to visit: nodes, and how many levels of the filter led to them.
        pending: list[tuple[Iterator[_Node], int]] = [(iter((self._root,)), 0)]
        while pending:
            nodes, depth = pending[-1]
            for node in nodes:
                if depth == last:
                    if node.topic is not None:
                        yield node.topic
                    continue
                level = levels[depth]
                following = depth + 1
                if level == "#":
                    # `a/#` matches `a` as well.
                    if node.topic is not None:
                        yield node.topic
                    following = depth
                children = node.children
                if children is None:
                    continue
                if level in ("+", "#"):
                    if node is self._root:
                        # A wildcard at the first level does not match topics that begin with $ [MQTT-4.7.2-1].
                        below = [child for name, child in children.items() if name[:1] != "$"]
                    else:
                        below = list(children.values())
                    pending.append((iter(below), following))
                    break
                child = children.get(level)
                if child is not None:
                    pending.append((iter((child,)), following))
                    break
            else:
                pending.pop()
