"""Everything that a running server holds: the model in service, the search threads, histories, metrics, settings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from beamtree.serving.deployment import Deployment
from beamtree.serving.histories import Histories
from beamtree.serving.metrics import Metrics
from beamtree.serving.pool import Done, SearchPool
from beamtree.serving.settings import ServerSettings

Result = TypeVar("Result")


@dataclass(eq=False)
class Service:
    """The parts that the routes share."""

    settings: ServerSettings
    deployment: Deployment
    pool: SearchPool
    metrics: Metrics
    histories: Histories | None
    is_stopping: bool = field(default=False)

    async def search(self, job: Callable[[], Result]) -> Done[Result]:
        """Run a job on a search thread and measure it."""
        done = await self.pool.run(job)
        self.metrics.search_done(waited=done.waited, ran=done.ran)
        return done
