"""Finds what is in sections."""

from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.sections.section import Section
from trunkline.analytics.report.tables import Table


def section(found: list[Section], name: str) -> Section:
    return next(each for each in found if each.id == name)


def part(of: Section, name: str) -> Plot | Table:
    return next(each for each in of.parts if each.id == name)
