"""Runs that are killed at moments drawn over all they do, resumed, and compared with the run that was left alone.

Run it: python tests/run/killing.py [--kills 200] [--seed 0]
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

SHORT = ["data.rows=64", "steps=6", "evaluation.questions=2", "evaluation.samples=2", "evaluation.every=3"]
SHORT += ["checkpoints.every=1", "log_samples=2", "prompts_per_step=4"]
RECIPES = {
    "grpo": ["sampler.samples=4"],
    "codistill": ["sampler.samples=6", "selection.rule.keep=4"],
    "opd": [],
    "semi_opd": ["sampler.prompts=16", "sampler.prompts_per_shard=4"],
    "semi_opd, refreshed": ["sampler.prompts=8", "sampler.prompts_per_shard=4", "sampler.refresh={every=2}"],
}
AGAIN = 0.5
"""Chance that a run that goes on is killed, too."""


def content(folder: Path) -> dict[str, object]:
    """The hash of every weight file, and every line without its times."""
    found: dict[str, object] = {}
    for path in sorted((folder / "policies").rglob("*.safetensors")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in ("metrics.jsonl", "samples.jsonl", "statuses.jsonl"):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        found[name] = [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]
    return found


def command(recipe: str, place: Path) -> list[str]:
    """What a user types: the run, or its resumption where there is a run to resume."""
    if (place / "out" / "recipe.resolved.toml").exists():
        return ["run", "--resume", str(place / "out")]
    shutil.rmtree(place / "out", ignore_errors=True)
    settings = [*SHORT, *RECIPES[recipe], *([f"sampler.buffer={place / 'buffer'}"] if "semi" in recipe else [])]
    return [
        "run",
        recipe.split(",")[0],
        "--out",
        str(place / "out"),
        *(part for own in settings for part in ("--set", own)),
    ]


def in_child(arguments: list[str], kill_after: float | None = None) -> tuple[int | None, float]:
    """A command in a process of its own, forked so that nothing is imported again; its code, None for a killed one."""
    started, child = time.monotonic(), os.fork()
    if child == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        from grpo_kit.cli import app

        try:
            app(arguments)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException:
            os._exit(99)
        os._exit(0)
    end = None if kill_after is None else started + kill_after
    while end is None or time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), time.monotonic() - started
        time.sleep(0.002)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, time.monotonic() - started


def survive(recipe: str, kills: int, draw: random.Random, folder: Path) -> Counter[str]:
    """Kill runs of a recipe so many times in all, and count what came of it."""
    found: Counter[str] = Counter()
    alone = folder / f"{recipe}-alone"
    alone.mkdir()
    code, seconds = in_child(command(recipe, alone))
    assert code == 0, f"{recipe} without a kill ended with {code}"
    expected, number = content(alone / "out"), 0
    while found["kills"] < kills:
        number += 1
        place = folder / f"{recipe}-{number}"
        place.mkdir()
        code, more = None, True
        while code is None:
            after = draw.uniform(0, seconds) if more and found["kills"] < kills else None
            code, _ = in_child(command(recipe, place), after)
            found["kills"] += code is None
            more = draw.random() < AGAIN
        found["runs"] += 1
        if code != 0:
            found[f"ended with {code}"] += 1
        elif content(place / "out") == expected:
            found["the same to the bit"] += 1
        else:
            found["different"] += 1
        shutil.rmtree(place)
    return found


def main(kills: int, seed: int) -> int:
    """Kill, resume and compare; 1 where a run was lost or differs."""
    import grpo_kit.run.resume

    assert grpo_kit.run.resume
    lost = 0
    with TemporaryDirectory() as folder:
        for recipe in RECIPES:
            found = survive(recipe, -(-kills // len(RECIPES)), random.Random(f"{seed}{recipe}"), Path(folder))
            lost += found["runs"] - found["the same to the bit"]
            print(f"{recipe}: {', '.join(f'{count} {what}' for what, count in found.items())}", flush=True)
    return int(lost > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sys.exit(main(asked.kills, asked.seed))
