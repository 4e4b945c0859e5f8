"""The diagnostics as one HTML page that needs nothing but itself."""

from collections.abc import Callable
from html import escape
from importlib.resources import files
from string import Template

from beamtree.diagnostics.fit_sections import bound_section, labels_section, training_section
from beamtree.diagnostics.headlines import Headline, headlines
from beamtree.diagnostics.part_sections import parts_section
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.search_sections import beams_section, heap_section, loss_section, sampling_section
from beamtree.diagnostics.section import Section, Table

# In the order in which one looks for a fault: who contributes, does it learn, does the search find it, why not. None
# where a model has no such thing.
SECTIONS: tuple[Callable[[Diagnostics], Section | None], ...] = (
    parts_section,
    loss_section,
    beams_section,
    heap_section,
    sampling_section,
    training_section,
    labels_section,
    bound_section,
)


def render_page(diagnostics: Diagnostics) -> str:
    """The whole page as text; the same diagnostics give the same text."""
    made = (section_of(diagnostics) for section_of in SECTIONS)
    sections = [section for section in made if section is not None]
    template = files("beamtree.diagnostics").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(f"Model {diagnostics.subject.model}: diagnostics"),
        about=escape(_about(diagnostics)),
        headlines="\n".join(_headline(headline) for headline in headlines(diagnostics)),
        links="\n".join(f'<a href="#{section.key}">{escape(section.title)}</a>' for section in sections),
        sections="\n".join(_section(section) for section in sections),
        footer=escape(f"Seed {diagnostics.subject.seed}. The same numbers are in the JSON file beside this page."),
    )


def _about(diagnostics: Diagnostics) -> str:
    subject = diagnostics.subject
    trained = f", trained with {subject.method}" if diagnostics.attention is not None else ""
    return (
        f"{subject.items:,} items in a tree of {subject.height} levels with branching {subject.branching}; a score of "
        f"{' + '.join(subject.parts)}{trained}. Measured on {subject.users:,} of {subject.available_users:,} "
        f"{subject.group} users, whose later items training never saw, at {subject.histories:,} of these items. "
        f"{subject.split[:1].upper()}{subject.split[1:]}."
    )


def _headline(headline: Headline) -> str:
    return (
        f'<div><dt>{escape(headline.name)}</dt><dd class="value">{escape(headline.value)}</dd>'
        f'<dd class="remark">{escape(headline.remark)}</dd></div>'
    )


def _section(section: Section) -> str:
    tables = "\n".join(_table(table) for table in section.tables)
    readings = "\n".join(f'<p class="reading">{escape(line)}</p>' for line in section.reading.splitlines())
    return (
        f'<section id="{section.key}">\n<h2>{escape(section.title)}</h2>\n'
        f"<p>{escape(section.meaning)}</p>\n"
        f"{readings}\n"
        f"{section.plot}\n"
        f'<p class="remedy"><strong>If it looks bad.</strong> {escape(section.remedy)}</p>\n'
        "<details><summary>Numbers, and how they are computed</summary>\n"
        f'<p class="definition">{escape(section.definition)}</p>\n'
        f"{tables}\n</details>\n</section>"
    )


def _table(table: Table) -> str:
    def cells(tag: str, row: tuple[str, ...]) -> str:
        kinds = (' class="text"' if column in table.texts else "" for column in range(len(row)))
        opened = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))
        return f"<tr>{''.join(opened)}</tr>"

    header = cells("th", table.header)
    rows = "\n".join(cells("td", row) for row in table.rows)
    return f'<div class="scroll"><table><thead>{header}</thead><tbody>\n{rows}\n</tbody></table></div>'
