"""What the paper reports, and which of its data sets ours stand for."""

from dataclasses import dataclass

STANDS_FOR = {
    "ml-1m": "Movie (MovieLens 10M there, 1M here: ratios can be compared, figures cannot)",
    "ml-100k": "Movie (MovieLens 10M there, 100k here: ratios can be compared, figures cannot)",
    "amazon-8cat": "Amazon (other categories, twice the items: ratios can be compared, figures cannot)",
    "globo": "MIND (news, another publisher: ratios can be compared, figures cannot)",
}


def in_order(data: str) -> tuple[int, str]:
    """To sort data sets by: those that stand for the paper's come first, in this order."""
    known = list(STANDS_FOR)
    return (known.index(data) if data in known else len(known), data)


F_AT_20 = {
    "ml-1m": {"dtr-u": 0.1431, "dtr-t": 0.1546, "dtr-t-rl": 0.1580, "sasrec": 0.1392},
    "globo": {"dtr-u": 0.2188, "dtr-t": 0.2250, "dtr-t-rl": 0.2350, "sasrec": 0.2254},
    "amazon-8cat": {"dtr-u": 0.0535, "dtr-t": 0.0557, "dtr-t-rl": 0.0580, "sasrec": 0.0509},
}
F_AT_20["ml-100k"] = F_AT_20["ml-1m"]
"""F@20 of the paper's tables on the data set that ours stands for."""

STUDIES = {
    "negatives": (
        "Negatives per level",
        "rises with more negatives and settles from 50 on; tree sampling wins when many",
    ),
    "branching": ("Children of a node", "rises with more branches, most of all for DTR(U)"),
    "embedding": ("Size of a node's vector", "rises up to 24, then settles"),
    "rounds": ("Rounds at equal instances", "rises with the updates of the tree, then converges"),
    "alpha": ("Weight of deeper levels (alpha)", "moderately more negatives on deeper levels help DTR(U)"),
}
"""Title of each sensitivity study, and what the paper finds in it."""


@dataclass(frozen=True)
class Claim:
    """One system has a higher F@20 than another."""

    better: str
    worse: str
    text: str

    def ratio(self, data: str) -> float | None:
        """The paper's ratio on the data set that ours stands for."""
        figures = F_AT_20.get(data, {})
        if self.better not in figures or self.worse not in figures:
            return None
        return figures[self.better] / figures[self.worse]


CLAIMS = (
    Claim("dtr-t", "dtr-u", "negatives drawn down the tree beat uniform ones"),
    Claim("dtr-t-rl", "dtr-t", "rectified labels help"),
    Claim("dtr-t-rl", "dtr-u", "both together beat uniform negatives and plain labels"),
    Claim("dtr-t-rl", "sasrec", "the tree beats SASRec, which scores every item"),
    Claim("dtr-t", "sasrec", "the tree beats SASRec without rectified labels"),
    Claim("dtr-u", "sasrec", "the tree beats SASRec with uniform negatives"),
    Claim("dtr-t-rl", "item-to-item", "the tree beats counting what followed what (not a claim of the paper)"),
    Claim("dtr-t", "item-to-item", "the tree without rectified labels beats counting (not a claim of the paper)"),
)
