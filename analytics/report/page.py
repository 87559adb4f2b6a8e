"""The page itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from trunkline import __version__
from trunkline.analytics.report import wording
from trunkline.analytics.report.findings import findings, tiles
from trunkline.analytics.report.plots import SIDE, Plot
from trunkline.analytics.report.sections import sections

if TYPE_CHECKING:
    from jinja2 import Template

    from trunkline.analytics.report.results import Results


@cache
def _template() -> Template:
    # everything is escaped, whatever the template is called: names come from clients
    environment = Environment(
        loader=PackageLoader("trunkline.analytics.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.jinja")


def _is_plot(part: object) -> bool:
    return isinstance(part, Plot)


def render(results: Results) -> str:
    """One HTML page that needs nothing else: no network, no script."""
    return _template().render(
        results=results,
        source=wording.name(results.source),
        begin=wording.moment(results.begin),
        end=wording.moment(results.end),
        made=wording.moment(results.made),
        length=wording.duration((results.end - results.begin).total_seconds()),
        tiles=tiles(results),
        findings=findings(results),
        sections=sections(results),
        side=SIDE,
        version=__version__,
        whole=wording.whole,
        is_plot=_is_plot,
    )
