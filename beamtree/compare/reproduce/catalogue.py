"""The paper's experiments by name, in its order.

Those of `OUTSIDE` need variants that the product does not have; `research` runs them, from a clone of the repository.
"""

from functools import partial
from types import MappingProxyType

from beamtree.compare.reproduce.experiment import Experiment, Heading, Variant
from beamtree.compare.reproduce.parts import (
    accuracy_part,
    cost_part,
    instances_part,
    megabytes,
    order_part,
    rounds_part,
    seconds_of_all,
    seconds_of_thousand_steps,
    sweep_part,
)

RESEARCH = "python -m research.reproduce"
DTR = {"dtr-u": "DTR(U)", "dtr-t": "DTR(T)", "dtr-t-rl": "DTR(T-RL)"}
TREES = {"plt": "PLT", "tdm": "TDM", "jtm": "JTM", "otm": "OTM", **DTR}
BRUTE_FORCE = {"din-published": "DIN", "youtube-dnn-published": "YouTubeDNN", "fmlp-rec-published": "FMLP-Rec"}
INDEXES = {"scann-published-mean": "ScaNN", "ip-nsw-mean": "IP-NSW", "qinco-mean": "QINCo", "rotlex-mean": "ROTLEX"}
SEQUENTIAL = {
    "gru4rec-published": "GRU4Rec",
    "sasrec": "SASRec",
    "fmlp-rec-published": "FMLP-Rec",
    "lightgcn-published": "LightGCN",
}
OURS = (Variant("beamtree"),)
SWEPT_INSTANCES = 100_000
UPDATED_INSTANCES = 260_000
EVERY_ROUND = {"min_round_steps": 1, "validations": 5, "validation_users": 1000}
"""As many rounds as published however short they are, each judged five times by up to 1,000 validation users."""


def _published(*groups: dict[str, str]) -> tuple[Variant, ...]:
    return tuple(Variant(system, name) for group in groups for system, name in group.items())


def _sweep(setting: str, name: str, values: range, **others: str) -> tuple[Variant, ...]:
    return tuple(
        Variant(system, published, {name: value, **others}, f"{setting} {value}", float(value))
        for system, published in DTR.items()
        for value in values
    )


_EXPERIMENTS = (
    Experiment(
        Heading(
            "results",
            "accuracy of every system",
            "Table 2",
            "DTR(T-RL) is ahead of DTR(T), DTR(U), OTM, JTM, TDM and PLT in this order, and of every other index.",
        ),
        (*_published(BRUTE_FORCE, INDEXES, {"jtr": "JTR"}, TREES), *OURS),
        lambda evidence: [accuracy_part(evidence), order_part(evidence), instances_part(evidence)],
    ),
    Experiment(
        Heading(
            "inference-time",
            "time to recommend for all test users",
            "Tables 3 and 8",
            "DTR is fastest on three of four logs; only ScaNN is faster, on the largest.",
        ),
        (*_published({k: v for k, v in BRUTE_FORCE.items() if v != "FMLP-Rec"}, INDEXES, {"jtr": "JTR"}, TREES), *OURS),
        lambda evidence: [
            cost_part(
                evidence,
                title="Inference time",
                unit="seconds for all test users in one batch",
                of_row=seconds_of_all,
                published="inference-time",
            ),
            accuracy_part(evidence),
        ],
    ),
    Experiment(
        Heading(
            "tree-updating",
            "F@20 over alternating rounds of model and tree",
            "Figure 3",
            "F@20 rises with the first updates and then converges; DTR(T-RL) > DTR(T) > DTR(U) > JTM throughout.",
        ),
        tuple(
            Variant(system, name, EVERY_ROUND, "all rounds")
            for system, name in {"jtm": "JTM", "otm": "OTM", **DTR}.items()
        ),
        lambda evidence: [rounds_part(evidence), instances_part(evidence), accuracy_part(evidence)],
        instances=UPDATED_INSTANCES,
    ),
    Experiment(
        Heading(
            "negatives",
            "F@20 over the number of negatives per level",
            "Figure 4",
            "F@20 rises and settles from 50 negatives on; DTR(U) is competitive with few of them and behind with many.",
        ),
        _sweep("negatives", "negatives", range(10, 91, 10)),
        lambda evidence: [sweep_part(evidence, axis="negatives per level")],
        instances=SWEPT_INSTANCES,
    ),
    Experiment(
        Heading(
            "branching",
            "F@20 over the branching factor, from random trees, with the same total number of negatives",
            "Figure 5",
            "F@20 rises with more branches, most of all that of DTR(U).",
        ),
        _sweep("branching", "branching", range(2, 11, 2), order="random"),
        lambda evidence: [sweep_part(evidence, axis="branches")],
        instances=SWEPT_INSTANCES,
    ),
    Experiment(
        Heading(
            "dimension",
            "F@20 over the embedding dimension",
            "Figure 6",
            "F@20 rises up to 24 and then settles.",
        ),
        _sweep("dimension", "embedding_dim", range(12, 33, 4)),
        lambda evidence: [sweep_part(evidence, axis="embedding dimension")],
        instances=SWEPT_INSTANCES,
    ),
    Experiment(
        Heading(
            "sequential",
            "accuracy beside sequential and graph-based models",
            "Table 6",
            "DTR(T-RL) is ahead of GRU4Rec, SASRec, FMLP-Rec and LightGCN, but for FMLP-Rec on one log.",
        ),
        (*_published(SEQUENTIAL, {"dtr-t-rl": "DTR(T-RL)"}), *OURS),
        lambda evidence: [accuracy_part(evidence)],
    ),
    Experiment(
        Heading(
            "training-time",
            "time of 1,000 training steps",
            "Table 7",
            "DTR(U) takes as long as DIN, DTR(T) about twice and DTR(T-RL) about 2.6 times as long, OTM longest.",
        ),
        (*_published(BRUTE_FORCE, {"jtr": "JTR"}, TREES),),
        lambda evidence: [
            cost_part(
                evidence,
                title="Training time",
                unit="seconds per 1,000 steps",
                of_row=seconds_of_thousand_steps,
                published="training-time",
            ),
            accuracy_part(evidence),
        ],
    ),
    Experiment(
        Heading(
            "memory",
            "size of the index",
            "Table 9",
            "DTR's index is as large as OTM's, smaller than JTR's and larger than quantised ones.",
        ),
        (*_published(INDEXES, {"jtr": "JTR", "otm": "OTM"}, DTR), *OURS),
        lambda evidence: [
            cost_part(evidence, title="Index size", unit="MB", of_row=megabytes, published="memory"),
            accuracy_part(evidence),
        ],
    ),
)

EXPERIMENTS = MappingProxyType({experiment.heading.name: experiment for experiment in _EXPERIMENTS})
"""Those that the product runs."""

_outside = partial(Heading, program=RESEARCH)
OUTSIDE = MappingProxyType(
    {
        heading.name: heading
        for heading in (
            _outside(
                "adaptive",
                "DTR(U) with more negatives on deeper levels",
                "Figure 8",
                "Moderately more negatives on deeper levels raise F@20.",
            ),
            _outside(
                "draws",
                "DTR(T) with other starts, corrections and modes of the top-down negatives",
                "Equations 20 to 23, published code",
                "Paths start at the root; the published code starts at a level and has another correction.",
            ),
            _outside(
                "labels",
                "DTR(T-RL) with labels by subtree, by child, normalised and soft",
                "Equations 13 to 15, published code",
                "Rectified labels raise F@20 over plain ones; the published code has a weaker test.",
            ),
            _outside(
                "placement",
                "DTR(T) with other placements of items, and other embeddings in a new tree",
                "Equation 28, published code",
                "Items are placed greedily by descending preference; embeddings stay with their nodes.",
            ),
            _outside(
                "bound",
                "terms of the generalisation bound of a fitted DTR(T-RL)",
                "Theorem 4",
                "A sampler nearer to the softmax makes the bound smaller.",
            ),
            _outside(
                "perturbation",
                "rectified labels that change under noisy probabilities",
                "Table 5",
                "Small errors of probabilities change few labels: below 10 % up to errors of 0.01, but for MIND.",
            ),
        )
    }
)
"""Those that only `research` runs."""
