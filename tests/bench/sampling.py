"""Tokens a second of the transformers sampler beside `generate`, continuous batching and TRL: `python sampling.py`.

Every measurement is a process of its own (`sampling_one.py`), TRL's in .venv-peers; the variants take turns, and speeds
are quoted as ratios to `generate` of the same round, median and range. Processor time, best of one thread
(OMP_NUM_THREADS=1), suffers less from whatever else runs. Only ours gives log-probabilities with the tokens.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".venv-peers/bin/python"
VARIANTS = ("generate", "ours", "static", "batching", "trl", "trl_batching")
TIMES = {"tiny:small": 5, "tiny:large": 3}
"""Calls a measurement, after one that does not count; of other models one, without any before."""


def measure(variant: str, model: str, length: int) -> dict[str, float] | None:
    """The numbers of one process; None where the variant does not run, its reason on standard error."""
    python = str(PEERS) if variant.startswith("trl") else sys.executable
    command = [python, str(HERE / "sampling_one.py"), variant, model, str(length), str(TIMES.get(model, 1))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{variant}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    return {"speed": found["tokens"] / found["seconds"], "frugality": found["tokens"] / found["processor"]}


def spread(values: list[float], form: str = ".2f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", nargs="+", default=["tiny:small", "tiny:large"], help="tiny:NAME or a folder")
    parser.add_argument("--tokens", type=int, nargs="+", default=[0, 30, 192], help="of a prompt; 0: natural ends")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS if PEERS.exists() else VARIANTS[:4]))
    options = parser.parse_args()
    print("| model | prompt | variant | tokens a second | speed / generate | the same, processor time |")
    print("|---|---|---|---|---|---|")
    for model in options.model:
        for length in options.tokens:
            rounds = [{v: measure(v, model, length) for v in options.variants} for _ in range(options.rounds)]
            for variant in options.variants:
                pairs = [(own, base) for found in rounds if (own := found[variant]) and (base := found["generate"])]
                if not pairs:
                    print(f"| {Path(model).name} | {length or 'question'} | {variant} | does not run | - | - |")
                    continue
                row = (
                    Path(model).name,
                    str(length or "question"),
                    variant,
                    spread([own["speed"] for own, _ in pairs], ".0f"),
                    *(spread([own[key] / base[key] for own, base in pairs]) for key in ("speed", "frugality")),
                )
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
