"""All bounds of the server: of one request, and of all requests together.

`Limits` are those that an operator may set; the constants hold for every server. A request beyond its bounds gets a 4xx
that names the bound; beyond those of the server, requests get a 503, and caches drop entries.
"""

from pydantic import BaseModel, ConfigDict, Field

from beamtree.data import parse


class Limits(BaseModel):
    """The bounds of one request that an operator may set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: int = Field(1_048_576, ge=1024, description="Bytes of a request body.")
    batch: int = Field(64, ge=1, description="Recommendation requests in one call.")
    history: int = Field(5000, ge=1, description="Items of a history; of a stored one, the latest are used.")
    k: int = Field(1000, ge=1, description="Items of one answer.")
    beam: int = Field(2000, ge=1, description="Beam width.")
    ids: int = Field(10_000, ge=1, description="Ids in `exclude` or in `allow`.")
    explained: int = Field(4, ge=1, description="Requests with `explain` in one call.")
    events: int = Field(1000, ge=1, description="Events in one call.")
    items: int = Field(1000, ge=1, description="Items that one call may add, or remove.")

    @property
    def elements(self) -> int:
        """Elements of a tensor of histories."""
        return self.batch * self.history


# One request.
HEADER_BYTES = 65_536
PIPELINED_REQUESTS = 64
"""Sent over one connection before the first of them is answered."""
LISTED_FAULTS = 1000
"""Of a body with more, no fault is described: describing each takes longer than finding it."""
ID_CHARACTERS = parse.ID_CHARACTERS  # longer ids are refused when a log is read
COLUMN_NAME_CHARACTERS = 512
COLUMNS = 32
SEARCH_CHARACTERS = 200
CONDITIONS = 16
CONDITION_VALUES = 1000
CONDITION_CHARACTERS = 1024
FEATURE_COLUMNS = 64
FEATURE_VALUES = 4096  # of a column that holds several, a vector for example
FEATURE_TEXT_CHARACTERS = 65_536  # features as a JSON text

# One answer.
FOUND_ITEMS = 100
SAMPLED_ITEMS = 50
LISTED_VALUES = 100
SHOWN_IDS = 100
NAMED_BRANCHES = 64

# All requests together.
FILTER_CACHE_BYTES = 32 * 2**20
HISTORY_CACHE_BYTES = 32 * 2**20
HISTORY_CACHE_SECONDS = 600.0
SEARCHED_TOGETHER = 32.0
SLICE_SECONDS = 0.01
REFUSAL_SECONDS = 1.0
REFUSALS_A_SECOND = 100.0

# When memory is short.
LIGHT_ITEMS = 100
"""Items of a call that is answered even when memory is short."""

# All connections.
SPARE_CONNECTIONS = 512
"""Open beyond `--max-connections`, for health and metrics, and to answer others with 503."""
SPARE_FILES = 256
"""Open files beside connections: models, stores, threads."""
ARRIVING_BYTES = 67_108_864
"""Of all bodies that have not arrived in full, or as much as `ARRIVING_BODIES` of the largest ones."""
ARRIVING_BODIES = 8
LOG_QUEUE_BYTES = 4_194_304
"""Log lines waiting to be written; further ones are dropped and counted."""
