"""Metrics for Prometheus."""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from beamtree.serving.connections import Connections
from beamtree.serving.pool import SearchPool
from beamtree.serving.watermarks import Watermarks

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters, histograms and gauges of one server, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = Counter(
            "beamtree_requests", "HTTP requests", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "beamtree_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._search_seconds = Histogram(
            "beamtree_search_seconds", "Time on a search thread", buckets=SECONDS, registry=self.registry
        )
        self._wait_seconds = Histogram(
            "beamtree_queue_seconds", "Time in the queue for a search thread", buckets=SECONDS, registry=self.registry
        )
        self._depth = Gauge("beamtree_queue_depth", "Calls waiting for a thread", ["pool"], registry=self.registry)
        self._work = Gauge(
            "beamtree_queue_work",
            "Work waiting for a thread, in searches of the model's beam width",
            ["pool"],
            registry=self.registry,
        )
        self._busy = Gauge("beamtree_busy_threads", "Busy threads", ["pool"], registry=self.registry)
        self._filter_cache = Gauge(
            "beamtree_filter_cache_bytes", "Cached filter masks of the current model", registry=self.registry
        )
        self._live_events = Gauge(
            "beamtree_live_events", "Events counted by the current model beside its log", registry=self.registry
        )
        self._history_cache = Gauge(
            "beamtree_history_cache_bytes", "Cached histories of the event store", registry=self.registry
        )
        self.in_flight = Gauge("beamtree_requests_in_flight", "HTTP requests in flight", registry=self.registry)
        self.recommendations = Counter(
            "beamtree_recommendations",
            "Recommendation requests answered; each request of a batch counts",
            registry=self.registry,
        )
        self.fallbacks = Counter("beamtree_fallbacks", "Requests answered with popular items", registry=self.registry)
        self.unknown_ids = Counter("beamtree_unknown_ids", "Ids that the model does not know", registry=self.registry)
        self.overloaded = Counter(
            "beamtree_overloaded", "Requests answered with 503", ["reason"], registry=self.registry
        )
        self._connections = Gauge("beamtree_connections", "Open connections", registry=self.registry)
        self._unread = Gauge(
            "beamtree_unread_bytes", "Bytes of answers not yet read by clients", registry=self.registry
        )
        self._dropped = Counter(
            "beamtree_connections_dropped", "Connections closed by the server", ["reason"], registry=self.registry
        )
        self.log_lines_dropped = Counter(
            "beamtree_log_lines_dropped", "Log lines dropped because the queue was full", registry=self.registry
        )
        self._free_memory = Gauge(
            "beamtree_free_memory_bytes", "Free memory of the machine or its container", registry=self.registry
        )
        self._free_disk = Gauge(
            "beamtree_free_disk_bytes", "Free space on the disk of the events", registry=self.registry
        )
        self.events = Counter("beamtree_events", "Events stored", registry=self.registry)
        self._reloads = Counter("beamtree_model_changes", "Models put in service", registry=self.registry)
        self._reload_failures = Counter("beamtree_reload_failures", "Models refused", registry=self.registry)
        self._watched = Gauge(
            "beamtree_watcher_heartbeat_seconds",
            "Unix time of the watcher's last check of the model folder",
            registry=self.registry,
        )
        self._differs = Gauge(
            "beamtree_model_folder_differs",
            "1 if the model folder holds another model than the one in service",
            registry=self.registry,
        )
        self._model = Gauge("beamtree_model_info", "The model in service", ["version"], registry=self.registry)

        self._of_route = cache(
            lambda method, route, status: (self._requests.labels(method, route, status), self._seconds.labels(route))
        )

    def watch_filter_cache(self, cached_bytes: Callable[[], int]) -> None:
        """Export the size of the filter cache."""
        self._filter_cache.set_function(cached_bytes)

    def watch_live_events(self, count: Callable[[], int]) -> None:
        """Export how many events the model has counted."""
        self._live_events.set_function(count)

    def watch_history_cache(self, cached_bytes: Callable[[], int]) -> None:
        """Export the size of the history cache."""
        self._history_cache.set_function(cached_bytes)

    def watch_pool(self, pool: SearchPool) -> None:
        """Export how many calls of a pool run and wait."""
        self._depth.labels(pool.name).set_function(lambda: pool.waiting)
        self._work.labels(pool.name).set_function(lambda: pool.waiting_work)
        self._busy.labels(pool.name).set_function(lambda: pool.running)

    def watch_connections(self, connections: Connections) -> None:
        """Export the number of open connections and of unread bytes."""
        self._connections.set_function(lambda: connections.open)
        self._unread.set_function(lambda: connections.unread_bytes)

    def watch_watermarks(self, watermarks: Watermarks) -> None:
        """Export free memory and disk space."""
        self._free_memory.set_function(lambda: watermarks.free_memory)
        self._free_disk.set_function(lambda: watermarks.free_disk)

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

    def watch_folder(self, differs: Callable[[], bool]) -> None:
        """Export whether the model folder differs from what is served."""
        self._differs.set_function(differs)

    def text(self) -> bytes:
        """Everything in the text format of Prometheus."""
        return generate_latest(self.registry)
