"""What POST /v1/recommend answers."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from beamtree.serving.schemas.fields import NodeName


class PathStep(NodeName):
    """A node on the path to an item, and its rank in the beam."""

    score: float
    searched: bool = Field(description="false on the upper levels, which the beam keeps whole without scoring them")
    rank: int | None = Field(description="rank of the node among all scored on this level, from 1")
    kept: bool = Field(description="whether the beam expanded this node")
    cutoff: float | None = Field(description="score of the last node that the beam kept on this level")


class BeamLevel(BaseModel):
    """One level of the search: what was scored and what was kept."""

    level: int
    size: int = Field(description="nodes of the level")
    scored: int = Field(description="nodes that were scored")
    kept: int
    cutoff: float | None = Field(description="score of the last node that was kept")
    nodes: list[int] = Field(description="the kept nodes, best first; on the last level the leaves of the answer")
    scores: list[float] = Field(description="their scores")
    dropped: list[int] = Field(description="the best of the nodes that were scored and not kept, at most 1,000")
    dropped_scores: list[float] = Field(description="their scores")


class BeamTrace(BaseModel):
    """The beam on every level."""

    width: int = Field(description="beam width after widening for excluded items")
    exact: bool = Field(description="all eligible items were scored: the beam was wide enough for them")
    levels: list[BeamLevel]


class HistoryEvidence(BaseModel):
    """An item of the history that supports a recommendation."""

    item_id: int | str
    title: str | None
    strength: float = Field(description="what it adds to the score of the item")
    part: str = Field(description="the part of the score that it contributes to (memory, tower)")


class RecommendedItem(BaseModel):
    """One item of an answer."""

    item_id: int | str
    rank: int
    score: float | None = Field(description="logit of the item's leaf; null for popular items")
    columns: dict[str, Any] | None = Field(None, description="the requested columns")
    path: list[PathStep] | None = Field(None, description="with explain: from level 1 to the leaf")
    parts: dict[str, float] | None = Field(
        None, description="with explain: the score by part (tower, memory, attention); their sum is the score"
    )
    because_of: list[HistoryEvidence] | None = Field(
        None,
        description="with explain: items of the history that memory connects with it, or without which the tower would "
        "score it lower, strongest first",
    )


class Recommendation(BaseModel):
    """The answer to one request."""

    items: list[RecommendedItem]
    source: Literal["beam", "popularity"]
    history_used: int = Field(description="known items of the history, all of which are read")
    user_known: bool | None = Field(None, description="with user_id: whether the store knows the user")
    unknown_ids: list[int | str] | None = Field(
        None, description="with unknown='report': ids that the model does not know"
    )
    beam: BeamTrace | None = Field(None, description="with explain, unless popular items were returned")


class TimeSpent(BaseModel):
    """Milliseconds."""

    queue: float
    search: float


class RecommendAnswer(BaseModel):
    """Answers in the order of the requests; one request gets a list of one."""

    model_version: str
    milliseconds: TimeSpent
    results: list[Recommendation]
