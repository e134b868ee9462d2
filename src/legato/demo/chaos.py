"""Many demo runs with random kill instants: `python -m legato.demo.chaos --runs 20`."""

import shutil
import sys
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from legato.demo.display import make_console
from legato.demo.job import run_demo
from legato.demo.options import DemoOptions
from legato.errors import LegatoError
from legato.processes.scratch import choose_seed, prepare_directory
from legato.terminal import Terminal


def chaos(
    runs: Annotated[int, typer.Option("--runs", help="How many runs.", min=1)] = 20,
    flights: Annotated[int, typer.Option("--flights", help="Flights in each run.")] = 40_000,
    kills: Annotated[int, typer.Option("--kills", help="Kills in each run.")] = 2,
    seed: Annotated[int | None, typer.Option("--seed", help="Repeat an earlier series.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to keep the runs that failed; emptied first.")] = Path(
        "demo-out"
    ),
) -> None:
    """Run the demo again and again, killing at other instants each time; the exit code is 1 if any run failed."""
    console = make_console()
    prepare_directory(out)
    series_seed = choose_seed() if seed is None else seed
    console.print(f"{runs} runs of {flights:,} flights with {kills} kills each; series seed {series_seed}")
    random = Random(series_seed)
    passed = 0
    for number in range(1, runs + 1):
        options = DemoOptions(
            flights=flights, kills=kills, seed=random.randrange(1, 1_000_000), out=out / f"run-{number:02}"
        )
        sentences = perform(options)
        if sentences:
            console.print(f"run {number} (seed {options.seed}) failed: {' '.join(sentences)}", style="red")
            console.print(f"  kept in {options.out}")
        else:
            passed += 1
            console.print(f"run {number} (seed {options.seed}) passed", style="green")
            shutil.rmtree(options.out)
    console.print(f"{passed} passed, {runs - passed} failed")
    raise typer.Exit(0 if passed == runs else 1)


def perform(options: DemoOptions) -> list[str]:
    """One run; what is wrong with it, a sentence each."""
    with (options.out.parent / f"{options.out.name}.log").open("w") as log:
        try:
            return run_demo(options, Terminal(file=log, width=160)).complaints()
        except LegatoError as error:
            return [str(error)]


if __name__ == "__main__":
    try:
        typer.run(chaos)
    except KeyboardInterrupt:
        sys.exit(130)
    except LegatoError as error:
        sys.exit(str(error))
