"""Carrying a training out on a cluster: Ray Train starts the workers, and starts them again when one of them dies."""

import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

from beamtree.cluster.connection import Cluster, connected
from beamtree.cluster.data_parallel import DataParallelLearner, DivisibleInstances, WorkerInstances
from beamtree.cluster.exchange import Exchange
from beamtree.cluster.mailbox import Mailbox, Sender
from beamtree.errors import BeamtreeError, ClusterError, InputError
from beamtree.training.checkpoint import forget_checkpoint
from beamtree.training.events import Event
from beamtree.training.trainer import Progress, Trainer

MAX_FAILURES = 10
"""So many times a run is taken up again after workers died; nodes that announce their end are not counted."""

SECONDS_BETWEEN_LOOKS = 0.5

MEMORY_OF_WORKERS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}
"""Ray Train learns in a thread of the worker. The heaps that glibc gives to threads return their memory after every
step, whatever `freed_memory_kept` asks for: workers have the main heap alone, which keeps it."""


@dataclass(frozen=True)
class ClusterTraining:
    """Trains on the workers of a cluster, in the way of `RunTraining`.

    The trainer is built here as ever and sent to every worker. Checkpoints are those of a single machine, written by
    the first worker to the folder of the plan, which all nodes have to share; after a failure, all workers go on from
    the last one. uses_gpu: one GPU for each worker, with the model on it.
    """

    cluster: Cluster
    uses_gpu: bool = False

    def __call__(self, trainer: Trainer, /, *, seconds_before: float = 0.0) -> Progress:
        """Train, and leave the best weights in the trainer's learner.

        InputError where there is no folder for checkpoints; ClusterError where the workers failed too often.
        """
        plan = trainer.plan
        if plan is None:
            raise InputError(
                "Learning on a cluster goes on from its checkpoints when a worker dies: give a folder for them, "
                "work_dir, that all nodes share."
            )
        if not isinstance(trainer.instances, DivisibleInstances):
            raise InputError(f"Expected instances that can be divided, got {type(trainer.instances).__name__}.")
        if not plan.resume:
            forget_checkpoint(plan.directory)
        resumed = replace(plan, directory=plan.directory.absolute(), resume=True)
        with connected(self.cluster) as ray:
            outcome = self._run(ray, replace(trainer, plan=resumed), seconds_before=seconds_before)
        if outcome is not None:
            raise outcome
        return replace(trainer, plan=resumed, listen=_ignore).run()  # takes up what the last checkpoint holds

    def _run(self, ray: Any, trainer: Trainer, *, seconds_before: float) -> BeamtreeError | None:
        """Let the workers train; the error that ended it on all of them, if there was one."""
        from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
        from ray.train.v2.api.exceptions import TrainingFailedError

        assert trainer.plan is not None
        workers = self.cluster.num_workers()
        here = ray.get_runtime_context().get_node_id()
        mailbox = ray.remote(num_cpus=0, label_selector={"ray.io/node-id": here})(Mailbox).remote()
        sent = replace(trainer, listen=_ignore, should_stop=_never, clock=time.monotonic)
        directory = trainer.plan.directory
        records = directory.with_name(f"{directory.name}.ray")
        shutil.rmtree(records, ignore_errors=True)  # of a driver that was killed: Ray must not take it up again
        run = TorchTrainer(
            _learn,
            train_loop_config={
                "trainer": ray.put(sent),
                "seconds_before": seconds_before,
                "mailbox": mailbox,
                "parts": self.cluster.parts or workers,
                "threads": self.cluster.threads,
            },
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if self.uses_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=(1, workers),  # after a failure, as many as there still is room for
                use_gpu=self.uses_gpu,
                resources_per_worker={"CPU": self.cluster.threads, **({"GPU": 1} if self.uses_gpu else {})},
                placement_strategy="SPREAD",
            ),
            run_config=RunConfig(
                name=trainer.name.replace(" ", "-"),
                storage_path=str(records),
                failure_config=FailureConfig(max_failures=MAX_FAILURES),
                logging_config=LoggingConfig("ERROR"),
                worker_runtime_env={"env_vars": MEMORY_OF_WORKERS},
            ),
        )
        ended: list[BeamtreeError | None] = []

        def fit() -> None:
            try:
                ended.append(run.fit().return_value)
            except TrainingFailedError as failure:
                ended.append(
                    ClusterError(
                        f"The workers failed more than {MAX_FAILURES} times: {_last_line(failure)}. The last "
                        f"checkpoint is in {directory}. Mend the nodes and go on with --resume (resume=True)."
                    )
                )

        def look() -> None:
            if trainer.should_stop():
                ray.get(mailbox.stop.remote())
            for event in ray.get(mailbox.take.remote()):
                trainer.listen(event)

        look()
        thread = Thread(target=fit, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(SECONDS_BETWEEN_LOOKS)
            look()
        ray.kill(mailbox)
        shutil.rmtree(records, ignore_errors=True)
        if not ended:
            raise ClusterError("Ray Train ended without a result. Look into its logs, and go on with --resume.")
        return ended[0]


def _learn(settings: dict[str, Any]) -> BeamtreeError | None:
    """What every worker does: train in step with all others. The error that ended it; None where it came to its end."""
    import ray
    import torch

    from beamtree import native

    torch.set_num_threads(settings["threads"])
    if native.is_available():
        native.set_threads(settings["threads"])
    trainer: Trainer = ray.get(settings["trainer"])
    exchange, plan, instances = Exchange(), trainer.plan, trainer.instances
    assert plan is not None
    assert isinstance(instances, DivisibleInstances)
    is_first = exchange.rank == 0
    sender = Sender(settings["mailbox"]) if is_first else None
    learner = DataParallelLearner(
        trainer.learner,
        exchange=exchange,
        parts=settings["parts"],
        should_stop=_never if sender is None else sender.is_stopping,
    )
    in_step = replace(
        trainer,
        learner=learner,
        instances=WorkerInstances(instances, settings["parts"], exchange),
        validate=None if trainer.validate is None else learner.validation(trainer.validate),
        plan=replace(plan, writes=is_first),
        listen=_ignore if sender is None else sender.listen,
        should_stop=learner.is_stopping,
        clock=learner.seconds,
    )
    try:
        _refuse_folder_of_one_node(plan.directory, exchange)
        in_step.run(seconds_before=settings["seconds_before"])
    except BeamtreeError as error:  # the same on all workers: to start again would end the same way
        return error
    finally:
        if sender is not None:
            sender.listen(learner.summary(trainer.name))
            sender.close()
    return None


def _refuse_folder_of_one_node(directory: Path, exchange: Exchange) -> None:
    """InputError, on all workers, where one of them does not see what the first one writes."""
    sign = directory / exchange.from_first(f".shared.{uuid.uuid4().hex}.tmp")
    if exchange.rank == 0:
        directory.mkdir(parents=True, exist_ok=True)
        sign.touch()
    exchange.from_first(None)
    is_seen = exchange.from_all(sign.is_file())
    if exchange.rank == 0:
        sign.unlink()
    if not all(is_seen):
        raise InputError(
            f"Expected a folder for checkpoints that all nodes share, but {directory} is seen by {sum(is_seen)} of "
            f"{len(is_seen)} workers only. Give one on a shared file system."
        )


def _last_line(failure: Exception) -> str:
    return str(failure).strip().splitlines()[-1]


def _ignore(_: Event) -> None:
    """Nobody listens."""


def _never() -> bool:
    """Nobody asks to stop."""
    return False
