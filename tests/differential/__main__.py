"""`python -m tests.differential`: Apache Kafka's cleaner and ours over generated workloads.

Ends with 0 if every difference is explained, with 1 if not, with 2 where Java or Maven is missing.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from pipeline.spark.jars import JarsUnavailable
from protocol.records.record_batch import Codec
from tests.differential.compare import Reason
from tests.differential.run import Outcome, run_workload
from tests.differential.workload import PROFILES, Workload
from tests.harness.kafka_cleaner import PINS, KafkaCleaner

SHOWN_MAX = 20


def workloads(first_seed: int, seeds: int, name: str | None) -> Iterator[Workload]:
    """Every profile with every codec and a mixture of them, for every seed."""
    for seed in range(first_seed, first_seed + seeds):
        for profile in PROFILES:
            for codec in (*Codec, None):
                workload = Workload(profile=profile, codec=codec, seed=seed)
                if name is None or workload.name.startswith(name):
                    yield workload


def main(
    seed: Annotated[int | None, typer.Option(help="The first seed; random by default.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from the first on.")] = 5,
    workload: Annotated[
        str | None, typer.Option(help="Only the workloads whose names begin so: profile/codec.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Give generated workloads to both cleaners and compare what is left after every pass."""
    console = Console(stderr=True)
    first_seed = random.randrange(1_000_000) if seed is None else seed
    console.print(f"seeds {first_seed} to {first_seed + seeds - 1}")
    started = time.monotonic()
    try:
        outcomes = run_all(list(workloads(first_seed, seeds, workload)), console)
    except JarsUnavailable as missing:
        console.print(str(missing))
        raise typer.Exit(2) from missing
    report = summary(outcomes, first_seed, seeds, time.monotonic() - started)
    typer.echo(json.dumps(report, indent=2) if as_json else text_of(report))
    show_unexplained(outcomes, console)
    raise typer.Exit(1 if report["unexplained"] else 0)


def run_all(planned: Sequence[Workload], console: Console) -> list[Outcome]:
    """With a progress line that names the workload under way."""
    outcomes = []
    with KafkaCleaner() as kafka, Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(planned))
        for workload in planned:
            progress.update(task, description=workload.name)
            outcomes.append(run_workload(workload, kafka))
            progress.advance(task)
    return outcomes


def summary(
    outcomes: Sequence[Outcome], first_seed: int, seeds: int, seconds: float
) -> dict[str, object]:
    """The run in figures."""
    found = Counter(each.reason for outcome in outcomes for each in outcome.differences)
    return {
        "kafka": PINS.name,
        "first_seed": first_seed,
        "seeds": seeds,
        "workloads": len(outcomes),
        "records_appended": sum(outcome.records_appended for outcome in outcomes),
        "records_left": sum(outcome.records_left for outcome in outcomes),
        "comparisons": sum(outcome.comparisons for outcome in outcomes),
        "kafka_passes": sum(outcome.kafka_passes for outcome in outcomes),
        "our_passes": sum(outcome.our_passes for outcome in outcomes),
        "deleted_keys_back_in_kafka": sum(outcome.resurrected_in_kafka for outcome in outcomes),
        "explained": {reason.value: found[reason] for reason in Reason},
        "unexplained": found[None],
        "unexplained_in": sorted(each.workload.name for each in outcomes if each.unexplained),
        "seconds": round(seconds, 1),
    }


def text_of(report: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in report.items())


def show_unexplained(outcomes: Sequence[Outcome], console: Console) -> None:
    shown = [(each.workload.name, found) for each in outcomes for found in each.unexplained]
    for name, found in shown[:SHOWN_MAX]:
        console.print(f"{name}: {found.what[:2000]}", markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(main)
