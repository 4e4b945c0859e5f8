"""The score: a sum of named parts over one tree, in torch. Learning and the judge of every search go through it."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.model.attention import Attention, make_attention
from beamtree.model.part import MakePartOnTree, Part, PreparedPart, ReadRows, check_part
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array

ATTENTION = "attention"
"""The name of the part that a score has by default."""


class Score(nn.Module):
    """o(u, n): the sum of the scores of its parts for node n and request u.

    A weight is named by its part and its name there: attention/node_table, attention/mlp.0.weight. A score is in
    evaluation mode but while its gradients are computed.
    """

    def __init__(self, tree: ItemTree, parts: Mapping[str, Part]) -> None:
        super().__init__()
        if any("/" in name for name in parts):
            raise InputError(f"Expected names of parts without a slash, got {', '.join(parts)}.")
        self.tree = tree
        self._names = tuple(parts)
        self._parts = nn.ModuleList(parts.values())  # a ModuleDict would refuse names such as "items"
        self.eval()

    @property
    def parts(self) -> dict[str, Part]:
        """The parts by name, in the order in which they are added up."""
        return {name: part for name, part in zip(self._names, self._parts, strict=True) if isinstance(part, Part)}

    @property
    def device(self) -> torch.device:
        """Where the score is computed; the CPU where it has no numbers."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if first is None else first.device

    def tables(self) -> dict[str, nn.Parameter]:
        """The parameters (rows, size) that are read by rows, by name."""
        return {
            f"{part_name}/{name}": part.get_parameter(name)
            for part_name, part in self.parts.items()
            for name, _ in part.named_parameters()
            if name in part.tables
        }

    def node_tables(self) -> list[str]:
        """The names of the tables with a row for each node of the tree."""
        return [name for name in self.tables() if name.split("/")[1] in self.parts[name.split("/")[0]].node_tables]

    def small_weights(self) -> dict[str, nn.Parameter]:
        """All other parameters by name: every step of learning touches them."""
        return {
            f"{part_name}/{name}": parameter
            for part_name, part in self.parts.items()
            for name, parameter in part.named_parameters()
            if name not in part.tables
        }

    def learned_levels(self) -> list[int]:
        """The levels below the root on which a part with weights scores; elsewhere there is nothing to learn."""
        where = [part.levels for part in self.parts.values() if any(True for _ in part.parameters())]
        below_root = range(1, self.tree.height + 1)
        return [level for level in below_root if any(levels is None or level in levels for levels in where)]

    def prepare(
        self, requests: Requests, *, read: ReadRows | None = None, dropout: torch.Generator | None = None
    ) -> "PreparedScore":
        """Prepare all parts for requests. read: how rows of tables are read, by full name; None reads them plainly."""
        reader = self._read if read is None else read
        prepared = {
            name: (part.prepare(requests, read=_of_part(name, reader), dropout=dropout), part.levels)
            for name, part in self.parts.items()
        }
        return PreparedScore(prepared)

    def start_from_items(self, item_vectors: Float32Array) -> None:
        """Move fresh tables near unit vectors of the items (items, size), in those parts that know how."""
        for part in self.parts.values():
            part.start_from_items(item_vectors)

    def arrays(self) -> dict[str, AnyArray]:
        """All weights and statistics by name, sharing memory with the score where it lives on the CPU."""
        return {
            f"{part_name}/{name}": tensor.detach().cpu().numpy()
            for part_name, part in self.parts.items()
            for name, tensor in part.state_dict().items()
        }

    @torch.no_grad()
    def load_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy in what `arrays` gave; ArtefactError where names or sizes differ."""
        shapes = {name: array.shape for name, array in arrays.items()}
        wanted = {name: array.shape for name, array in self.arrays().items()}
        different = sorted(name for name in shapes | wanted if shapes.get(name) != wanted.get(name))
        if different:
            raise ArtefactError(
                f"The arrays do not fit the score of the parts {', '.join(self.parts)}: {different[0]} and "
                f"{len(different) - 1} more are missing, unknown or of another size. Give the parts and the settings "
                "that they were learned with."
            )
        for part_name, part in self.parts.items():
            for name, tensor in part.state_dict().items():
                tensor.copy_(torch.from_numpy(np.array(arrays[f"{part_name}/{name}"])))

    def _read(self, table: str, rows: Tensor) -> Tensor:
        part_name, name = table.split("/")
        return self.parts[part_name].get_parameter(name)[rows.clamp(min=0)]


class PreparedScore:
    """The sum of prepared parts, by name, each on its own levels."""

    def __init__(self, parts: Mapping[str, tuple[PreparedPart, range | None]]) -> None:
        self._parts = parts

    def __call__(self, levels: Sequence[int], nodes: Tensor) -> Tensor:
        """Scores (levels, requests, columns) of nodes numbered over the whole tree, -inf where there is none (-1).

        InputError where a part answers in another shape.
        """
        total: Tensor | None = None
        for name, (score_nodes, own_levels) in self._parts.items():
            places = [place for place, level in enumerate(levels) if own_levels is None or level in own_levels]
            if not places:
                continue
            is_everywhere = len(places) == len(levels)
            asked = nodes if is_everywhere else nodes[places]
            scores = score_nodes([levels[place] for place in places], asked)
            if scores.shape != asked.shape:
                raise InputError(
                    f"Expected scores {tuple(asked.shape)} from the part {name}, (levels, requests, columns) as the "
                    f"nodes have, got {tuple(scores.shape)}."
                )
            if not is_everywhere:
                zeros = scores.new_zeros(nodes.shape)
                scores = zeros.index_copy(0, torch.tensor(places, device=nodes.device), scores)
            total = scores if total is None else total + scores
        if total is None:
            total = torch.zeros(nodes.shape, device=nodes.device)
        return total.masked_fill(nodes < 0, -torch.inf)


def build_score(
    config: Config, tree: ItemTree, *, seed: int, parts: Mapping[str, MakePartOnTree] | None = None
) -> Score:
    """A freshly initialised score for a tree; the same seed gives the same bytes.

    parts: the summands by name, all of them; None is attention alone. They draw from one generator, one after another.
    InputError where a part contradicts itself or the tree.
    """
    generator = torch.Generator().manual_seed(seed)
    makers = {ATTENTION: make_attention} if parts is None else parts
    made = {name: make(tree, config, generator) for name, make in makers.items()}
    for name, part in made.items():
        check_part(name, part, tree)
    return Score(tree, made)


def attention_alone(score: Score) -> Attention | None:
    """The attention, on all levels or the last, of a score that is nothing else; None where there is more to it."""
    part = score.parts.get(ATTENTION)
    return part if len(score.parts) == 1 and isinstance(part, Attention) else None


def _of_part(part_name: str, read: ReadRows) -> ReadRows:
    """Reads a part's tables by the names that they have inside it."""

    def read_own(table: str, rows: Tensor) -> Tensor:
        return read(f"{part_name}/{table}", rows)

    return read_own
