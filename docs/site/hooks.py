"""What the site has beside the written pages: reference pages made from the code, formulas as MathML, result files."""

import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from reference import cli_page, http_page, settings_page  # noqa: E402

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
OUTSIDE = re.compile(r"\]\(((?:\.\./)+)((?:results|examples|deploy)/[^)#]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, the changelog, and the files that pages link to."""
    made = {
        "reference/cli.md": cli_page(),
        "reference/http.md": http_page(),
        "reference/settings.md": settings_page(),
        "changes.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    written = [file.content_string for file in files.documentation_pages() if file.src_path.endswith(".md")]
    for name in sorted({name for text in written for _, name in OUTSIDE.findall(text)}):
        files.append(File.generated(config, f"files/{name}", content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files of the repository lead to the copies in the site."""
    return OUTSIDE.sub(lambda link: f"]({link[1].removeprefix('../')}files/{link[2]})", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML, which browsers show without a script."""
    return FORMULA.sub(lambda found: convert(_unescaped(found[2]), display=_display(found[1])), html)


def _display(tag: str) -> str:
    return "block" if tag == "div" else "inline"


def _unescaped(html: str) -> str:
    return html.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()
