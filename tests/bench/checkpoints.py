"""The share of a run that checkpoints every 25 steps take, on the tiny pair: `python checkpoints.py [--steps 50]`.

Both are measured in the same run: the seconds from the first step to the end of the last one, and those of them that
writing checkpoints took, with hashes, syncs and the removal of old ones.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from grpo_kit import read_recipe
from grpo_kit.config import find_recipe
from grpo_kit.run.session import Session, start
from grpo_kit.run.setup import load_inputs


def share(recipe: str, steps: int, folder: Path) -> tuple[float, list[float], int]:
    """Seconds of the steps, of each checkpoint, and the bytes of one."""
    described = read_recipe(recipe, settings=[f"steps={steps}", "evaluation.questions=1", "evaluation.samples=1"])
    source = find_recipe(recipe).read_text()
    session = start(described, load_inputs(described), source, out=folder, console=Console(quiet=True))
    saved, spent, writing = Session._checkpoint, [], time.perf_counter

    def timed(self: Session) -> None:
        before = writing()
        saved(self)
        spent.append(writing() - before)

    Session._checkpoint = timed  # pyright: ignore[reportAttributeAccessIssue]
    started = time.perf_counter()
    assert session.run() == 0
    seconds = time.perf_counter() - started
    Session._checkpoint = saved
    latest = max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    return seconds, spent, sum(file.stat().st_size for file in latest.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--recipes", nargs="+", default=["grpo", "codistill"])
    options = parser.parse_args()
    print("| recipe | run | checkpoints | of the run | one |")
    print("|---|---|---|---|---|")
    for recipe in options.recipes:
        with TemporaryDirectory() as folder:
            seconds, spent, size = share(recipe, options.steps, Path(folder) / "out")
        each = f"{min(spent) * 1000:.0f} to {max(spent) * 1000:.0f} ms, {size / 2**20:.1f} MiB"
        print(f"| {recipe} | {seconds:.1f} s | {len(spent)} | {100 * sum(spent) / seconds:.2f} % | {each} |")


if __name__ == "__main__":
    main()
