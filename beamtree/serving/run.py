"""Start a server, keep it running, and stop it without losing a request."""

import asyncio
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf

import uvicorn
from starlette.types import ASGIApp

from beamtree import native
from beamtree.data.interactions import InteractionLog
from beamtree.errors import InputError
from beamtree.serving.app import create_app
from beamtree.serving.connections import ConnectionLimits, Connections
from beamtree.serving.deployment import Deployment
from beamtree.serving.event_file import DAY, EventFile
from beamtree.serving.events import EventStore
from beamtree.serving.histories import Histories, UserEvents
from beamtree.serving.http_protocol import guarded_protocol
from beamtree.serving.limits import (
    ARRIVING_BODIES,
    ARRIVING_BYTES,
    SEARCHED_TOGETHER,
    SLICE_SECONDS,
    SPARE_CONNECTIONS,
    SPARE_FILES,
)
from beamtree.serving.live import LiveEvents
from beamtree.serving.loaded_model import load_model
from beamtree.serving.logs import LogQueue
from beamtree.serving.metrics import Metrics
from beamtree.serving.pool import SearchPool
from beamtree.serving.service import Service
from beamtree.serving.settings import ServerSettings
from beamtree.serving.trial import try_in_child, try_model
from beamtree.serving.watermarks import Watermarks

PREPARING_AND_SEARCHING = 2
LOOKUP_THREADS = 2
LAST_WORDS_SECONDS = 0.1


def serve(
    settings: ServerSettings,
    *,
    log: InteractionLog | None,
    announce: Callable[[str], None],
    log_queue: LogQueue | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    announce: called with the address once the server accepts connections. log_queue: where log lines go; those that it
    drops are counted. ArtefactError where the model cannot be served, InputError where the address is taken or the
    system allows fewer open files than connections.
    """
    _allow_open_files(settings.max_connections + SPARE_CONNECTIONS + SPARE_FILES)
    listening = _listen(settings)
    try:
        service = build_service(settings, log=log)
    except BaseException:
        listening.close()
        raise
    host, port = listening.getsockname()[:2]
    stop = threading.Event()
    if settings.watch_seconds:
        watch = threading.Thread(
            target=service.deployment.watch, args=(stop,), kwargs={"seconds": settings.watch_seconds}, daemon=True
        )
        watch.start()
    connections = Connections(
        ConnectionLimits(
            clients=settings.max_connections,
            seconds=settings.timeout,
            unread_bytes=settings.max_unread,
            arriving_bytes=max(ARRIVING_BYTES, ARRIVING_BODIES * settings.limits.body),
        ),
        count_dropped=service.metrics.connection_dropped,
    )
    service.metrics.watch("connections", "Open connections", lambda: connections.open)
    service.metrics.watch("unread_bytes", "Bytes of answers not yet read by clients", lambda: connections.unread_bytes)
    service.metrics.watch("arriving_bytes", "Bytes of unfinished bodies", lambda: connections.arriving_bytes)
    if log_queue is not None:
        log_queue.count_dropped = service.metrics.log_lines_dropped.inc
    shown = f"[{host}]" if ":" in host else host

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        announce(f"http://{shown}:{port}")
        yield
        if connections.open:
            await asyncio.sleep(LAST_WORDS_SECONDS)  # requests that were cut short say so
            connections.close()

    config = _uvicorn_config(create_app(service, lifespan=lifespan), connections, stop_seconds=settings.stop_seconds)
    server = uvicorn.Server(config)
    service.is_stopping = lambda: server.should_exit
    try:
        listening.listen()
        with _signal_handlers(service.deployment.reload_or_record):
            server.run(sockets=[listening])
    finally:
        stop.set()
        service.close()


def _uvicorn_config(app: ASGIApp, connections: Connections, *, stop_seconds: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        proxy_headers=False,
        timeout_graceful_shutdown=stop_seconds,
        timeout_keep_alive=75,
        http=guarded_protocol(connections),
        ws="none",
    )


def build_service(settings: ServerSettings, *, log: InteractionLog | None) -> Service:
    """Load the model and create the parts of a server."""
    spans = None
    if settings.telemetry:
        from beamtree.integrations.telemetry import Spans

        spans = Spans()
    metrics = Metrics()
    deployment = Deployment(settings.model, load=load_model, trial=try_in_child, witness=metrics)
    try_model(deployment.current, directory=settings.model)
    histories, events, live = None, None, None
    if log is not None or settings.events is not None:
        file, stored = None, None
        if settings.events is not None:
            file = EventFile(settings.events, lock_seconds=settings.timeout)
            stored = UserEvents(settings.events, lock_seconds=settings.timeout)
        histories = Histories(log, stored=stored, latest=settings.limits.history)
        if file is not None:
            events = EventStore(
                file,
                outdate=histories.outdate,
                outdate_all=histories.outdate_all,
                queue=settings.queue,
                timeout_seconds=settings.timeout,
                keep_seconds=inf if settings.keep_events_days is None else DAY * settings.keep_events_days,
            )
            if settings.live and settings.events is not None:
                live = LiveEvents(
                    settings.events,
                    current=lambda: deployment.current,
                    histories=histories,
                    lock_seconds=settings.timeout,
                )
                live.start()
    searches, lookups = _pools(settings)
    watermarks = Watermarks(
        min_free_memory=settings.min_free_memory, min_free_disk=settings.min_free_disk, store=settings.events
    )
    service = Service(
        settings=settings,
        deployment=deployment,
        searches=searches,
        lookups=lookups,
        metrics=metrics,
        histories=histories,
        events=events,
        live=live,
        watermarks=watermarks,
        spans=spans,
    )
    _watch(service)
    return service


def _watch(service: Service) -> None:
    """Export the state of all parts."""
    watch, deployment, watermarks = service.metrics.watch, service.deployment, service.watermarks
    histories, live = service.histories, service.live
    watch("model_folder_differs", "1 if the folder holds another model than is served", deployment.differs_from_folder)
    watch("filter_cache_bytes", "Cached masks", lambda: deployment.current.recommender.filter_cache_bytes)
    watch("history_cache_bytes", "Cached histories", lambda: 0 if histories is None else histories.cached_bytes)
    watch("live_events", "Events counted beside the log", lambda: 0 if live is None else live.num_interactions)
    watch("free_memory_bytes", "Free memory of the machine or its container", lambda: watermarks.free_memory)
    watch("free_disk_bytes", "Free space on the disk of the events", lambda: watermarks.free_disk)
    _watch_pool(service.metrics, service.searches)
    _watch_pool(service.metrics, service.lookups)


def _watch_pool(metrics: Metrics, pool: SearchPool) -> None:
    metrics.watch("queue_depth", "Calls waiting for a thread", lambda: pool.waiting, pool=pool.name)
    metrics.watch("queue_work", "Work waiting, in searches of the model", lambda: pool.waiting_work, pool=pool.name)
    metrics.watch("busy_threads", "Busy threads", lambda: pool.running, pool=pool.name)


def _pools(settings: ServerSettings) -> tuple[SearchPool, SearchPool]:
    """Threads for searches, and others for slow look-ups.

    The kernels use all cores for one batch: two threads suffice, one that prepares a batch while the other searches.
    Without kernels, torch searches one request after another, so each thread takes one at a time.
    """
    threads, together = settings.threads, 1.0
    if native.is_available():
        native.set_threads(settings.threads)
        threads, together = PREPARING_AND_SEARCHING, SEARCHED_TOGETHER
    queue, seconds = settings.queue, settings.timeout
    return (
        SearchPool(
            "searches",
            threads=threads,
            queue=queue,
            timeout_seconds=seconds,
            together=together,
            slice_seconds=SLICE_SECONDS,
            slices_at_once=threads,
        ),
        SearchPool("lookups", threads=LOOKUP_THREADS, queue=queue, timeout_seconds=seconds),
    )


@contextmanager
def _signal_handlers(reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP reads the model folder; after SIGTERM or SIGINT, `serve` returns.

    While uvicorn runs, it handles the latter two itself. Having stopped, it restores these handlers and raises the
    signal again, which by default would end the process before events are written.
    """

    def ignore(*_: object) -> None:
        pass

    def reload_in_background(*_: object) -> None:
        threading.Thread(target=reload, daemon=True).start()

    handlers = {signal.SIGTERM: ignore, signal.SIGINT: ignore, signal.SIGHUP: reload_in_background}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _allow_open_files(wanted: int) -> None:
    """Raise the limit on open files; InputError where the system does not allow it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        raise InputError(
            f"That many connections need {wanted:,} open files, but the system allows {most:,}. "
            f"Lower --max-connections, or raise the limit (ulimit -n {wanted})."
        ) from None


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise InputError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
            "Choose another --port or --host."
        ) from error
    return listening
