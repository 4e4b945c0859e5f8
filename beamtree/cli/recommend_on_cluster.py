"""beamtree recommend --cluster: progress and result."""

from pathlib import Path

from rich.progress import TextColumn

from beamtree.cli.console import messages
from beamtree.cluster.connection import Cluster
from beamtree.cluster.recommending import Job, ShardDone, recommend_everybody
from beamtree.progress import timed_bar


def recommend_on_cluster(cluster: Cluster, job: Job, out: Path) -> None:
    """Recommend for all users, with a progress bar over shards and the remaining time."""
    bar = timed_bar(
        "recommending",
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} shards, {task.fields[users]:,} users"),
        console=messages,
    )
    messages.print("Partitioning the log by user.", markup=False)
    users = 0
    with bar:
        task = bar.add_task("", total=None, visible=False, users=0)

        def on_shard(done: ShardDone | None, total: int) -> None:
            nonlocal users
            if done is None:
                messages.print(f"Recommending for the users of {total:,} shards.", markup=False)
                bar.reset(task, total=total, visible=True, users=0)
            else:
                users += done.users
                bar.update(task, advance=1, users=users)

        made = recommend_everybody(cluster, job, out, on_shard=on_shard)
    found = f"; {made.found:,} of them were there before" if made.found else ""
    messages.print(
        f"Wrote recommendations for {made.users:,} users; {made.shards:,} files in {out}{found}.",
        markup=False,
        soft_wrap=True,
    )
    if made.cold:
        messages.print(
            f"{made.cold:,} of these users have no item in the log that the model knows: they get the most popular "
            "items, without scores.",
            markup=False,
            soft_wrap=True,
        )
