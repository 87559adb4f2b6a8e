"""How evenly the nodes carry the load, from sums that a report has anyway. The job balance says it of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from trunkline.analytics.report.results import Results

#: What is compared, by its words: the sums of nodes, and gauges.
_SUMS: Final = {"published": "published", "delivered": "delivered", "connections": "connected"}
_GAUGES: Final = {"clients connected": "connections.count", "sessions": "sessions.count"}
#: The busiest node has so many times the mean where a load is uneven, and it is large enough to speak of.
_UNEVEN: Final = 1.5
_LARGE: Final = 100.0


class Load(NamedTuple):
    name: str
    nodes: int
    total: float
    #: The node that has most of it, and how much.
    node: str
    most: float

    @property
    def mean(self) -> float:
        return self.total / self.nodes

    @property
    def skew(self) -> float:
        """1 is even."""
        return self.most / self.mean

    @property
    def is_uneven(self) -> bool:
        return self.skew >= _UNEVEN and self.total >= _LARGE


def loads(results: Results) -> list[Load]:
    """Those of which there is any, if there are several nodes. A node that did nothing counts as 0, but one without
    readings of a gauge is left out of it."""
    amounts = {
        name: {node.name: float(getattr(node, attribute)) for node in results.nodes}
        for name, attribute in _SUMS.items()
    }
    for name, gauge in _GAUGES.items():
        amounts[name] = {row.node: row.mean for row in results.gauge_sums if row.name == gauge}
    found: list[Load] = []
    for name, of_nodes in amounts.items():
        total = sum(of_nodes.values())
        if len(of_nodes) > 1 and total:
            node = min(of_nodes, key=lambda node: (-of_nodes[node], node))
            found.append(Load(name, len(of_nodes), total, node, of_nodes[node]))
    return found
