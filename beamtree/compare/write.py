"""The files that a comparison writes to its folder."""

import json
from collections.abc import Sequence
from pathlib import Path

from beamtree.compare.report import About, markdown, page
from beamtree.compare.summary import Result, Summary, summarise, sweeps, table
from beamtree.storage import replace_file, replace_text


def write_report(results: Sequence[Result], about: About, *, directory: Path) -> tuple[Summary, str]:
    """results.json, results.parquet, sweeps.parquet, report.md and report.html; the summary and the Markdown."""
    summary = summarise(results)
    kept = [{name: value for name, value in result.items() if name != "per_user"} for result in results]
    replace_text(directory / "results.json", json.dumps(kept, indent=1) + "\n")
    if not summary.rows:
        reasons = {**summary.left_out, **summary.failed}
        return summary, "\n".join(f"{name}: {why}" for name, why in reasons.items())
    for name, frame in (("results.parquet", table(summary)), ("sweeps.parquet", sweeps(summary))):
        if frame.width:
            replace_file(directory / name, frame.write_parquet)
    text = markdown(summary, about)
    replace_text(directory / "report.md", text)
    replace_text(directory / "report.html", page(summary, about))
    return summary, text
