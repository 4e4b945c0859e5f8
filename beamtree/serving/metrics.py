"""Metrics for Prometheus."""

from collections.abc import Callable
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters, histograms and gauges of one server, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=SECONDS)
        self.recommendations = counter(
            "beamtree_recommendations", "Recommendation requests answered; each request of a batch counts"
        )
        self.fallbacks = counter("beamtree_fallbacks", "Requests answered with popular items")
        self.unknown_ids = counter("beamtree_unknown_ids", "Ids that the model does not know")
        self.overloaded = counter("beamtree_overloaded", "Requests answered with 503", ["reason"])
        self.log_lines_dropped = counter("beamtree_log_lines_dropped", "Log lines dropped because the queue was full")
        self.events = counter("beamtree_events", "Events stored")
        self.in_flight = gauge("beamtree_requests_in_flight", "HTTP requests in flight")
        self._requests = counter("beamtree_requests", "HTTP requests", ["method", "route", "status"])
        self._seconds = histogram("beamtree_request_seconds", "Time to answer", ["route"])
        self._search_seconds = histogram("beamtree_search_seconds", "Time on a search thread")
        self._wait_seconds = histogram("beamtree_queue_seconds", "Time in the queue for a search thread")
        self._dropped = counter("beamtree_connections_dropped", "Connections closed by the server", ["reason"])
        self._reloads = counter("beamtree_model_changes", "Models put in service")
        self._reload_failures = counter("beamtree_reload_failures", "Models refused")
        self._watched = gauge(
            "beamtree_watcher_heartbeat_seconds", "Unix time of the watcher's last check of the model folder"
        )
        self._model = gauge("beamtree_model_info", "The model in service", ["version"])
        self._gauge = cache(lambda name, description, labels: gauge(name, description, labels))
        self._of_route = cache(
            lambda method, route, status: (self._requests.labels(method, route, status), self._seconds.labels(route))
        )

    def watch(self, name: str, description: str, value: Callable[[], float], *, pool: str | None = None) -> None:
        """Export a value that is read when the metrics are. pool: the label of a pool of threads."""
        watched = self._gauge(f"beamtree_{name}", description, () if pool is None else ("pool",))
        (watched if pool is None else watched.labels(pool)).set_function(value)

    def connection_dropped(self, reason: str) -> None:
        """Count a connection closed by the server."""
        self._dropped.labels(reason).inc()

    def request_done(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """Count one HTTP request."""
        requests, times = self._of_route(method, route, status)
        requests.inc()
        times.observe(seconds)

    def search_done(self, *, waited: float, ran: float) -> None:
        """Count one call to the search threads."""
        self._wait_seconds.observe(waited)
        self._search_seconds.observe(ran)

    def model_changed(self, version: str) -> None:
        """Another model is served from now on."""
        self._model.clear()
        self._model.labels(version).set(1)
        self._reloads.inc()

    def reload_failed(self) -> None:
        """A model was refused."""
        self._reload_failures.inc()

    def folder_watched(self) -> None:
        """The watcher has checked the model folder."""
        self._watched.set_to_current_time()

    def text(self) -> bytes:
        """Everything in the text format of Prometheus."""
        return generate_latest(self.registry)
