"""What may be asked, and what is answered: the shapes of all JSON bodies. Unknown fields are refused."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from beamtree.serving.limits import (
    COLUMN_NAME_CHARACTERS,
    COLUMNS,
    CONDITION_CHARACTERS,
    CONDITION_VALUES,
    CONDITIONS,
    FEATURE_COLUMNS,
    FEATURE_VALUES,
    ID_CHARACTERS,
)

EXACT_FLOATS = 2**53
"""Up to here a floating-point number means one integer, and further on several."""


def _exact(value: object) -> int:
    """40576.0 is an integer, to JSON Schema as to JavaScript."""
    if not isinstance(value, float) or not value.is_integer() or abs(value) > EXACT_FLOATS:
        raise ValueError("expected an integer")
    return int(value)


def _exact_float(value: object) -> object:
    return _exact(value) if isinstance(value, float) else value


Count = Annotated[StrictInt, BeforeValidator(_exact_float)]
WholeNumber = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]
AnyId = (
    WholeNumber
    | Annotated[StrictStr, Field(max_length=ID_CHARACTERS)]
    | SkipJsonSchema[Annotated[int, BeforeValidator(_exact)]]
)
ItemId = TypeAliasType("ItemId", AnyId)
UserId = TypeAliasType("UserId", AnyId)
ColumnName = TypeAliasType("ColumnName", Annotated[StrictStr, Field(max_length=COLUMN_NAME_CHARACTERS)])
"""Named, so that the OpenAPI document can say what the ids and columns of the served model are."""

ConditionText = Annotated[StrictStr, Field(max_length=CONDITION_CHARACTERS)]
Value = StrictBool | WholeNumber | Annotated[StrictFloat, Field(allow_inf_nan=False)] | ConditionText
FeatureValue = Value | Annotated[list[Value], Field(max_length=FEATURE_VALUES)] | None
FeatureValues = Annotated[dict[ColumnName, FeatureValue], Field(max_length=FEATURE_COLUMNS)]
"""Values by column, null = missing."""

UnknownIds = Literal["report", "ignore", "refuse"]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Condition(_Asked):
    """One condition on a column of the item table; of the four, at least one is given and all given ones must hold."""

    column: ColumnName = Field(description="a column of the item table, such as category")
    one_of: Annotated[list[Value], Field(max_length=CONDITION_VALUES)] | None = Field(
        None, description="one of these values"
    )
    contains: ConditionText | None = Field(None, description="a text column holds this; a list column has this element")
    at_least: Value | None = Field(None, description="the smallest value that is allowed; dates as ISO texts")
    at_most: Value | None = Field(None, description="the largest value that is allowed")

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.one_of is None and self.contains is None and self.at_least is None and self.at_most is None:
            raise ValueError("a condition needs one_of, contains, at_least or at_most")
        return self


class Allow(_Asked):
    """Which items may come back: these ids, and those that meet all conditions; given both, both must hold."""

    ids: list[ItemId] | None = Field(None, description="only these items")
    where: Annotated[list[Condition], Field(max_length=CONDITIONS)] | None = Field(
        None, description="only items that meet all of these conditions"
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.ids is None and self.where is None:
            raise ValueError("allow needs ids or where")
        return self


def _older_spelling(fallback: object) -> object:
    """without_known_items="refuse" means fallback="error"."""
    return "error" if fallback == "refuse" else fallback


class Recommend(_Asked):
    """One person's request: a history or a user id, and what to recommend."""

    history: list[ItemId] | None = Field(None, description="raw item ids, newest last")
    user_id: UserId | None = Field(None, description="a user of the history store, instead of a history")
    user_features: FeatureValues = Field(
        {}, description="of who asks: values by column of the user table that the model was fitted with"
    )
    context: FeatureValues = Field(
        {}, description="in which the recommendations are shown: values by context column of the log"
    )
    k: Count = Field(20, ge=1, description="how many items")
    beam: Count | None = Field(None, ge=1, description="nodes kept per level; default: the model's setting")
    exclude_seen: StrictBool | None = Field(None, description="leave out the history; default: the model's setting")
    exclude: list[ItemId] = Field([], description="items that must not come back")
    allow: Allow | None = Field(None, description="only these items may come back; default: all")
    unknown: UnknownIds = Field(
        "report", description="ids that the model has never seen: listed in the answer, passed over, or refused"
    )
    fallback: Annotated[Literal["popularity", "error"], BeforeValidator(_older_spelling)] = Field(
        "popularity",
        validation_alias=AliasChoices("fallback", "without_known_items"),
        description="where neither a known item nor a feature says who asks: the most popular items, or 422",
    )
    columns: Annotated[list[ColumnName], Field(max_length=COLUMNS)] = Field(
        [], description="columns of the item table to return with each item"
    )
    explain: StrictBool = Field(
        False, description="what each part of the score gave, because of which items, and how the beam went"
    )

    @model_validator(mode="after")
    def _names_one_person(self) -> Self:
        if (self.history is None) == (self.user_id is None):
            raise ValueError("give either history or user_id")
        return self


class RecommendMany(_Asked):
    """Several requests in one call."""

    requests: Annotated[list[Recommend], Field(min_length=1, description="each as for one request")]


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, dict) and "requests" in body else "one"


RecommendBody = Annotated[
    Annotated[Recommend, Tag("one")] | Annotated[RecommendMany, Tag("many")], Discriminator(_one_or_many)
]
recommend_body: TypeAdapter[Recommend | RecommendMany] = TypeAdapter(RecommendBody)


class Event(_Asked):
    """A user met an item."""

    user_id: UserId
    item_id: ItemId
    timestamp: Annotated[StrictFloat | WholeNumber, Field(allow_inf_nan=False)] | None = Field(
        None, description="seconds since 1970; default: now"
    )
    event_type: Annotated[StrictStr, Field(min_length=1, max_length=255)] | None = Field(
        None, description="such as view or buy: the event counts as the model was fitted to count it; default: 1"
    )


class EventsBody(_Asked):
    """Events in the order in which they happened; they come after all that the store already holds."""

    events: Annotated[list[Event], Field(min_length=1)]
    unknown: UnknownIds = Field("report", description="items that the model has never seen; 'refuse' takes no event")


class ErrorText(BaseModel):
    """What went wrong."""

    code: str = Field(description="for programs, such as unknown_ids")
    message: str = Field(description="for people: what was expected, what arrived, what to do")
    details: list[Any] = Field(description="the faulty fields or ids")


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorText


class NodeName(BaseModel):
    """A node of the tree; level 0 is the root."""

    level: int
    node: int


class PathStep(NodeName):
    """A node on the way to an item, and where the beam stood there."""

    score: float
    searched: bool = Field(description="false above the first level that the beam did not keep whole")
    rank: int | None = Field(description="place of the node among all scored on this level, from 1")
    kept: bool = Field(description="whether the beam went on below this node")
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
    """How the search went."""

    width: int = Field(description="beam width after widening for excluded items")
    exact: bool = Field(description="all eligible items were scored: the beam was wide enough for them")
    levels: list[BeamLevel]


class HistoryEvidence(BaseModel):
    """An item of the history that speaks for a recommendation."""

    item_id: int | str
    title: str | None
    strength: float = Field(description="what it adds to the score of the item")
    part: str = Field(description="the part of the score that it speaks through (memory, tower)")


class RecommendedItem(BaseModel):
    """One item of an answer."""

    item_id: int | str
    rank: int
    score: float | None = Field(description="logit of the item's leaf; null for popular items")
    columns: dict[str, Any] | None = Field(None, description="the columns that were asked for")
    path: list[PathStep] | None = Field(None, description="with explain: from level 1 to the leaf")
    parts: dict[str, float] | None = Field(
        None,
        description="with explain: what each part of the score gave (tower, memory, attention); their sum is the score",
    )
    because_of: list[HistoryEvidence] | None = Field(
        None,
        description="with explain: items of the history that memory connects with it, or without which the tower would "
        "score it lower, the strongest first",
    )


class Recommendation(BaseModel):
    """The answer to one request."""

    items: list[RecommendedItem]
    source: Literal["beam", "popularity"]
    history_used: int = Field(description="known items of the history, all of which are read")
    user_known: bool | None = Field(None, description="with user_id: whether the store knows the user")
    unknown_ids: list[int | str] | None = Field(None, description="with unknown='report': ids the model never saw")
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


class ItemRow(BaseModel):
    """An item and the columns that were asked for."""

    item_id: int | str
    popularity: int | float = Field(description="training interactions, or the sum of their weights")
    columns: dict[str, Any]


class ItemAnswer(ItemRow):
    """Everything known about an item."""

    model_version: str
    leaf: int
    path: list[NodeName] = Field(description="from the root to the leaf")


class ItemsAnswer(BaseModel):
    """Found items: ids and titles that are the text, then those that begin with it, then those that hold it.

    Items that were asked for by id come in the order of the ids.
    """

    model_version: str
    matches: int = Field(description="how many items match in all")
    items: list[ItemRow]
    unknown_ids: list[str] | None = Field(None, description="with id: those that the model does not know")


class NearItem(ItemRow):
    """A similar item."""

    common_level: int | None = Field(
        None, description="by tree: the deepest level with a common node; higher is nearer"
    )
    similarity: float | None = Field(None, description="by embedding: cosine of the leaf vectors")
    strength: float | None = Field(None, description="by memory: ln(1 + how often it followed the item)")


class SimilarAnswer(BaseModel):
    """Neighbours of an item in the tree, in the space of leaf vectors, and among what followed it in the log.

    by_embedding needs a model with attention or a tower, by_memory one with memory; they are null otherwise.
    """

    model_version: str
    item_id: int | str
    by_tree: list[NearItem] | None
    by_embedding: list[NearItem] | None
    by_memory: list[NearItem] | None


class ColumnValue(BaseModel):
    """A value of a column and the number of items that have it."""

    value: Any
    count: int


class ColumnFacts(BaseModel):
    """A column of the item table."""

    name: str
    type: str
    values: list[ColumnValue] | None = Field(description="most frequent first; null where there are too many")


class NodeSummary(NodeName):
    """A node and what is below it."""

    name: str = Field(description="typical categories, or the most popular titles below; empty where nothing is known")
    leaves: int
    items: int
    sample: list[ItemRow] = Field(description="the most popular items below")
    values: list[ColumnValue] = Field(description="the most frequent categories below")


class NodeAnswer(NodeSummary):
    """A node of the tree, its children and its way to the root."""

    model_version: str
    is_leaf: bool
    path: list[NodeName] = Field(description="from the root to this node")
    children: list[NodeSummary]


class Branch(NodeName):
    """A node of an upper level."""

    name: str = Field(description="typical categories, or the most popular titles below; empty where nothing is known")
    items: int


class BranchesAnswer(BaseModel):
    """The nodes of the upper levels, from the top down."""

    model_version: str
    branches: list[Branch]


class ModelAnswer(BaseModel):
    """What is being served."""

    model_version: str
    loaded_at: str
    id_type: Literal["integer", "text"]
    items: int
    history_length: int
    tree: dict[str, Any]
    defaults: dict[str, Any]
    limits: dict[str, int]
    columns: list[ColumnFacts]
    metrics: dict[str, dict[str, float]]
    training: dict[str, Any]
    users: bool = Field(description="whether user_id may be given")
    events: bool = Field(description="whether events are taken")


class EventsAnswer(BaseModel):
    """The events are on disk."""

    accepted: int
    repeated: bool | None = Field(
        None, description="with Idempotency-Key: whether it came before, so that nothing was added now"
    )
    ignored: int | None = Field(
        None, description="of these, events of a type that the model was fitted to leave out; they are not kept"
    )
    unknown_ids: list[int | str] | None = None


class ForgetBody(_Asked):
    """A user whose events are to be deleted."""

    user_id: UserId


ItemValue = StrictBool | WholeNumber | Annotated[StrictFloat, Field(allow_inf_nan=False)] | StrictStr


class NewItem(BaseModel):
    """An item, and any of the columns of the item table that the model was fitted with; dates are ISO texts."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, ItemValue | list[ItemValue | None] | None] = Field(init=False)

    item_id: ItemId


class ItemsBody(_Asked):
    """Items that join the catalogue, and items that leave it. An item that was removed comes back when it is added."""

    add: list[NewItem] = Field(default=[], description="none of which the catalogue has")
    remove: list[ItemId] = Field(default=[], description="never recommended again; histories may still hold them")


class ForgetAnswer(BaseModel):
    """The events of the user are deleted."""

    deleted_events: int
    in_log: bool = Field(description="the log behind --histories holds the user too: remove it there and restart")


class ReloadFailure(BaseModel):
    """Why the last model that was offered is not being served."""

    message: str
    at: str


class ReadyAnswer(BaseModel):
    """Whether requests can be answered, and by which model."""

    ready: bool
    model_version: str
    previous_version: str | None
    last_reload_failure: ReloadFailure | None


class HealthAnswer(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class AdminAnswer(BaseModel):
    """Which model is served now."""

    model_version: str
    previous_version: str | None
    changed: bool


class ItemsChangedAnswer(AdminAnswer):
    """The catalogue that is served now."""

    added: int
    reinstated: int = Field(description="items that had been removed and came back")
    removed: int
    items: int = Field(description="items that can be recommended")
    leaves: int = Field(description="of the tree; it grows where no vacant one is left")
