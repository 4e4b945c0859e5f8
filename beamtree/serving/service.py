"""The state of a running server: model, search threads, histories, events, metrics, settings."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from beamtree.serving.answers import Answers, answer_calls
from beamtree.serving.deployment import Deployment
from beamtree.serving.events import EventStore
from beamtree.serving.histories import Histories
from beamtree.serving.live import LiveEvents
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.metrics import Metrics
from beamtree.serving.pool import Done, SearchPool
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.serving.settings import ServerSettings
from beamtree.serving.watermarks import Watermarks
from beamtree.serving.work import works_of

if TYPE_CHECKING:  # OpenTelemetry is optional
    from beamtree.integrations.telemetry import Spans

Result = TypeVar("Result")
Written = TypeVar("Written")
Write = Callable[[Sequence[Answers | BaseException]], Sequence[Sequence[Written] | BaseException]]


@dataclass(frozen=True)
class SearchSpan:
    """Attributes of a search for its trace, and when it ended by `time.perf_counter`."""

    ended_at: float
    attributes: dict[str, str | int | float]


@dataclass(eq=False)
class Service:
    """The parts that the routes share."""

    settings: ServerSettings
    deployment: Deployment
    searches: SearchPool
    lookups: SearchPool
    metrics: Metrics
    histories: Histories | None
    events: EventStore | None
    watermarks: Watermarks
    live: LiveEvents | None = None
    spans: "Spans | None" = None
    is_stopping: Callable[[], bool] = lambda: False

    async def recommend(
        self, model: LoadedModel, requests: Sequence[Recommend], *, write: Write[Written], connection: Hashable
    ) -> Done[list[Written]]:
        """Search for all requests of a call, in a batch with other waiting calls; explanations use the look-up threads.

        write: serialises the answers, on the thread that searched.
        """
        pool = self.lookups if any(request.explain for request in requests) else self.searches
        done = await pool.submit(
            requests,
            handle=lambda calls: write(answer_calls(model, calls, histories=self.histories)),
            works=works_of(model, requests),
            connection=connection,
            key=(model.version, write),
        )
        self.metrics.search_done(waited=done.waited, ran=done.ran)
        return done

    async def look_up(self, call: Callable[[], Result], *, connection: Hashable) -> Result:
        """Run a slow function on a look-up thread."""
        return (await self.lookups.run(call, connection=connection)).result

    def close(self) -> None:
        """Let running work finish and write queued events."""
        self.searches.close()
        self.lookups.close()
        if self.live is not None:
            self.live.close()
        if self.histories is not None:
            self.histories.close()
        if self.events is not None:  # last, so that SQLite removes its write-ahead log
            self.events.close()
        if self.spans is not None:
            self.spans.close()
