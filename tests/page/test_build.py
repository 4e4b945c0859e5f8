"""What is committed in dist is what src builds; told without Node."""

import hashlib
import json
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "beamtree" / "serving" / "page"
BUILD = PAGE / "dist" / "build.json"
REMEDY = "run npm ci && npm run build in beamtree/serving/page and commit dist"


def digests(paths: list[Path], folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_dist_was_built_from_these_sources() -> None:
    own = [PAGE / name for name in ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")]
    sources = digests([*own, *(path for path in (PAGE / "src").rglob("*") if path.is_file())], PAGE)
    assert json.loads(BUILD.read_text())["sources"] == sources, REMEDY


def test_dist_was_not_edited_by_hand() -> None:
    files = digests([path for path in (PAGE / "dist").iterdir() if path != BUILD], PAGE / "dist")
    assert json.loads(BUILD.read_text())["files"] == files, REMEDY


def test_the_page_names_the_versions_of_its_parts() -> None:
    html = (PAGE / "dist" / "index.html").read_text()
    parts = dict(re.findall(r'(?:src|href)="(page\.\w+)\?v=(\w+)"', html))
    assert parts == {
        name: hashlib.sha256((PAGE / "dist" / name).read_bytes()).hexdigest()[:12] for name in ("page.js", "page.css")
    }


def test_the_lock_file_names_no_hosts() -> None:
    assert "://" not in re.sub(r'"url": "[^"]*"', "", (PAGE / "package-lock.json").read_text())
