"""Reads a Dockerfile into stages and instructions, as far as ours goes."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
CLUSTER_DOCKERFILE = ROOT / "deploy" / "Dockerfile.ray"


@dataclass(frozen=True)
class Instruction:
    """One instruction: RUN, COPY, ... and the rest of its line."""

    name: str
    text: str


@dataclass(frozen=True)
class Stage:
    """What follows a FROM, up to the next one."""

    base: str
    instructions: tuple[Instruction, ...]

    def texts(self, name: str) -> list[str]:
        """The instructions of one kind, in order."""
        return [instruction.text for instruction in self.instructions if instruction.name == name]


def read_stages(path: Path = DOCKERFILE) -> list[Stage]:
    """The stages of a Dockerfile; comments are left out and continued lines joined."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    instructions = [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]
    starts = [index for index, instruction in enumerate(instructions) if instruction.name == "FROM"]
    ends = [*starts[1:], len(instructions)]
    return [
        Stage(instructions[start].text.split()[0], tuple(instructions[start + 1 : end]))
        for start, end in zip(starts, ends, strict=True)
    ]
