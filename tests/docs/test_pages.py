"""The pages of the documentation: what they link to is there, and what they tell people to type works."""

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.beamtree_command import Command

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MADE = {"reference/cli.md", "reference/http.md", "reference/settings.md", "changes.md"}
"""Pages that are made from the code when the site is built."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        place = (page.parent / target).resolve()
        assert place.exists() or str(place.relative_to(DOCS)) in MADE, target


def test_every_page_has_its_place_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = set(re.findall(r"[\w/-]+\.(?:md|ipynb)", json.dumps(navigation)))
    written = {str(path.relative_to(DOCS)) for path in [*PAGES, *DOCS.glob("notebooks/*.ipynb")]}
    assert named == written | MADE


def test_the_tutorial_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts, commands, the server and the requests to it, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    beamtree = Command(monkeypatch, capsys)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    server: subprocess.Popen[str] | None = None
    port, answers = "8080", []
    try:
        for language, block in re.findall(r"^```(python|sh)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            if language == "python":
                exec(compile(block, "tutorial.md", "exec"), {})
                continue
            for line in block.splitlines():
                words = shlex.split(line)
                if words[:2] == ["beamtree", "serve"]:
                    words[words.index("--port") + 1] = "0"
                    command = [sys.executable, "-m", *words]
                    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    assert server.stdout is not None
                    port = next(
                        found[1] for said in server.stdout if (found := re.search(r"http://[\w.]+:(\d+)", said))
                    )
                elif words[0] == "beamtree":
                    outcome = beamtree(*words[1:])
                    assert outcome.code == 0, f"{line}\n{outcome.err}"
                elif words[0] == "curl":
                    answers.append(_curl(words, port=port))
    finally:
        if server is not None:
            server.terminate()
            server.communicate()
    recommended, accepted, known = answers
    assert [len(one["results"][0]["items"]) for one in (recommended, known)] == [3, 3]
    assert known["results"][0]["source"] != "popularity"
    assert accepted


def _curl(words: list[str], *, port: str) -> dict[str, Any]:
    [url] = [word for word in words if word.startswith("localhost:8080")]
    name, _, value = words[words.index("-H") + 1].partition(": ")
    data = words[words.index("-d") + 1].encode()
    request = urllib.request.Request(
        url.replace("localhost:8080", f"http://127.0.0.1:{port}"), data=data, headers={name: value}
    )
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
