"""Writes the digests of the base images into the Dockerfiles and the compose file.

    python -m tests.deploy.pin_images

Asks docker for the digest that each tag has now. An image that has one already gets the newer one, so that this is also
how a base image is taken up that has been mended. Looks at nothing else in the files.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.deploy.dockerfile import CLUSTER_DOCKERFILE, DOCKERFILE, ROOT

COMPOSE = ROOT / "deploy" / "compose.yaml"
IMAGE = re.compile(r"^((?:FROM|\s+image:)\s+)([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?", flags=re.MULTILINE)


def ask_docker(image: str) -> str:
    """The digest of the image, of all platforms together, such as sha256:...; SystemExit without a registry."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    digest = answer.stdout.strip()
    if answer.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"docker has no digest for {image}: {answer.stderr.strip() or digest}. Nothing was changed.")
    return digest


def pin(text: str, find_digest: Callable[[str], str]) -> str:
    """The text of a Dockerfile or compose file with the present digest behind every image that has a tag."""
    return IMAGE.sub(lambda found: f"{found[1]}{found[2]}@{find_digest(found[2])}", text)


def main(paths: tuple[Path, ...] = (DOCKERFILE, CLUSTER_DOCKERFILE, COMPOSE)) -> None:
    """Pin all files; nothing is written where one digest cannot be found."""
    pinned = {path: pin(path.read_text(encoding="utf-8"), ask_docker) for path in paths}
    for path, text in pinned.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
