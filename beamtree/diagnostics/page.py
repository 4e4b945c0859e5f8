"""The diagnostics as one self-contained HTML page."""

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from beamtree.diagnostics.cost_sections import latency_section
from beamtree.diagnostics.fit_sections import labels_section, training_section
from beamtree.diagnostics.headlines import Headline, headlines
from beamtree.diagnostics.list_sections import accuracy_section, examples_section, exposure_section
from beamtree.diagnostics.part_sections import parts_section
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.search_sections import beams_section, heap_section, loss_section, sampling_section
from beamtree.diagnostics.section import Section, Table

SectionOf = Callable[[Diagnostics], Section | None]
"""None where a model has no such thing."""

# What an operator asks first, theory last.
GROUPS: tuple[tuple[str, tuple[SectionOf, ...]], ...] = (
    ("What users get", (accuracy_section, examples_section, exposure_section)),
    ("What it costs", (latency_section, beams_section)),
    ("What the parts add", (parts_section,)),
    (
        "Theory, for training",
        (loss_section, heap_section, sampling_section, training_section, labels_section),
    ),
)


def render_page(diagnostics: Diagnostics) -> str:
    """The whole page as text; the same diagnostics give the same text."""
    made = [(title, [section_of(diagnostics) for section_of in sections]) for title, sections in GROUPS]
    return render(
        title=f"Model {diagnostics.subject.model}",
        about=_about(diagnostics),
        headlines=headlines(diagnostics),
        groups=[(title, [section for section in sections if section is not None]) for title, sections in made],
        footer=f"Seed {diagnostics.subject.seed}. The same numbers are in the JSON file beside this page.",
    )


def render(
    *,
    title: str,
    about: str,
    headlines: Sequence[Headline],
    groups: Sequence[tuple[str, Sequence[Section]]],
    footer: str,
) -> str:
    """A page of sections under the titles of their groups; a group without a section is left out."""
    template = files("beamtree.diagnostics").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(title),
        about=escape(about),
        headlines="\n".join(_headline(headline) for headline in headlines),
        links="\n".join(_links(title, sections) for title, sections in groups if sections),
        sections="\n".join(_group(title, sections) for title, sections in groups if sections),
        footer=escape(footer),
    )


def _links(title: str, sections: Sequence[Section]) -> str:
    links = (f'<a href="#{section.key}">{escape(section.title)}</a>' for section in sections)
    return "\n".join([f"<p>{escape(title)}</p>", *links])


def _group(title: str, sections: Sequence[Section]) -> str:
    return "\n".join([f'<h2 class="group">{escape(title)}</h2>', *(_section(section) for section in sections)])


def _about(diagnostics: Diagnostics) -> str:
    subject = diagnostics.subject
    trained = f", trained with {subject.method}" if diagnostics.labels is not None else ""
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
    shown = "\n".join(_table(table) for table in section.shown)
    remedy = (
        f'<p class="remedy"><strong>If it looks bad.</strong> {escape(section.remedy)}</p>\n' if section.remedy else ""
    )
    readings = "\n".join(f'<p class="reading">{escape(line)}</p>' for line in section.reading.splitlines())
    return (
        f'<section id="{section.key}">\n<h3>{escape(section.title)}</h3>\n'
        f"<p>{escape(section.meaning)}</p>\n"
        f"{readings}\n"
        f'<div class="scroll">{section.plot}</div>\n{shown}\n{remedy}'
        f"<details><summary>{'Numbers, and how they are' if tables else 'How this is'} computed</summary>\n"
        f'<p class="definition">{escape(section.definition)}</p>\n'
        f"{tables}\n</details>\n</section>"
    )


def _table(table: Table) -> str:
    def cells(tag: str, row: tuple[str, ...]) -> str:
        kinds = (' class="text"' if column in table.texts else "" for column in range(len(row)))
        opened = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))
        return f"<tr>{''.join(opened)}</tr>"

    header = cells("th", table.header)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    rows = "\n".join(cells("td", row) for row in table.rows)
    return f'<div class="scroll"><table>{caption}<thead>{header}</thead><tbody>\n{rows}\n</tbody></table></div>'
