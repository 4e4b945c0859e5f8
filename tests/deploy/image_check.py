"""Runs the Dockerfile's install steps in a fresh environment and reports what the image would hold.

    python -m tests.deploy.image_check [--json]

Takes a minute and the package index, so it is a make target of its own. Where no container engine is at hand, this is
the nearest thing to a build: the same files are copied, the same commands run, with the image's folders moved below a
temporary one. Then the server is started on the kept example model and asked for its health and metrics.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.deploy.dockerfile import ROOT, Instruction, Stage, read_stages

ENVIRONMENT = "/opt/beamtree"
FORBIDDEN = ("torch", "scikit-learn", "onnx", "onnxruntime", "pytest", "pip", "cmake", "ninja", "nanobind")
EXAMPLE_MODEL = ROOT / "tests" / "fixtures" / "artefact-v1"
START_SECONDS = 60


def run_build_stage(stage: Stage, *, folder: Path) -> Path:
    """Follow WORKDIR, COPY, ARG and RUN below `folder`; gives the environment that the image would take over."""
    variables: dict[str, str] = {}
    working_directory = folder
    for instruction in stage.instructions:
        match instruction:
            case Instruction("WORKDIR", text):
                working_directory = folder / text.lstrip("/")
                working_directory.mkdir(parents=True)
            case Instruction("ARG", text):
                name, _, value = text.partition("=")
                variables[name] = value
            case Instruction("COPY", text):
                *sources, destination = text.split()
                for source in sources:
                    _copy(ROOT / source, working_directory / destination, into=len(sources) > 1)
            case Instruction("RUN", text) if not text.startswith("apt-get"):
                command = text.replace(ENVIRONMENT, str(folder / ENVIRONMENT.lstrip("/")))
                command = command.replace("python -m", f"{sys.executable} -m")
                print(f"RUN {text}", file=sys.stderr)
                subprocess.run(
                    ["sh", "-ec", command], cwd=working_directory, env=os.environ | variables, check=True, stdout=2
                )
    return folder / ENVIRONMENT.lstrip("/")


def _copy(source: Path, destination: Path, *, into: bool) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        if into:
            destination.mkdir(exist_ok=True)
        shutil.copy(source, destination / source.name if into else destination)


def list_packages(environment: Path) -> dict[str, str]:
    """Names and versions of all installed packages."""
    script = (
        "import json, importlib.metadata as m; "
        "print(json.dumps(sorted((d.metadata['Name'], d.version) for d in m.distributions())))"
    )
    answer = subprocess.run([environment / "bin" / "python", "-c", script], check=True, capture_output=True, text=True)
    return dict(json.loads(answer.stdout))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def largest_parts(environment: Path, count: int = 8) -> dict[str, float]:
    """The folders and files of site-packages that take most, in MB."""
    [packages] = environment.glob("lib/python*/site-packages")
    sizes = {path.name: folder_bytes(path) if path.is_dir() else path.stat().st_size for path in packages.iterdir()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:count]
    return {name: round(sizes[name] / 1e6, 1) for name in largest}


def serve_once(environment: Path, *, model: Path) -> dict[str, int]:
    """Start the server as the image would, ask for /healthz and /metrics, stop it with SIGTERM; statuses and code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(environment / "bin" / "beamtree"), "serve", str(model), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=sys.stderr, env={"PATH": f"{environment / 'bin'}:/usr/bin:/bin"})
    try:
        statuses = {path: _wait_for(f"http://127.0.0.1:{port}{path}", server) for path in ("/healthz", "/metrics")}
        server.terminate()
        code = server.wait(timeout=START_SECONDS)
        if code not in (0, -signal.SIGTERM):
            raise SystemExit(f"The server should stop on SIGTERM; it ended with {code}.")
        return statuses | {"exit": code}
    finally:
        server.kill()


def _wait_for(address: str, server: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2) as response:
                return int(response.status)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"{address} did not answer; the server ended with {server.poll()}.")


def check() -> dict[str, Any]:
    """Build, look, serve; SystemExit where something is there that should not be, or does not answer."""
    build, _ = read_stages()
    with tempfile.TemporaryDirectory() as folder:
        environment = run_build_stage(build, folder=Path(folder))
        packages = list_packages(environment)
        unwanted = sorted(set(FORBIDDEN) & {name.lower() for name in packages})
        if unwanted:
            raise SystemExit(f"The image would hold {', '.join(unwanted)}, which serving does not need.")
        return {
            "environment_mb": round(folder_bytes(environment) / 1e6, 1),
            "packages": packages,
            "largest_mb": largest_parts(environment),
            "served": serve_once(environment, model=EXAMPLE_MODEL),
        }


def main() -> None:
    """Parse the command line and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    report = check()
    if arguments.json:
        print(json.dumps(report))
        return
    print(f"environment {report['environment_mb']} MB, on top of the base image")
    for name, size in report["largest_mb"].items():
        print(f"  {size:8.1f} MB  {name}")
    print(f"{len(report['packages'])} packages: " + ", ".join(f"{n} {v}" for n, v in report["packages"].items()))
    print(f"answers: {report['served']}")


if __name__ == "__main__":
    main()
