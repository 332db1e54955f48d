"""Time and memory of the chunked head beside dense PyTorch and TRL: `python head.py [--rounds 3] [--size ...] ...`.

Every measurement is a process of its own (`one.py`), ours in this environment and TRL's in .venv-peers; the variants
take turns, and times are quoted as ratios to the dense one of the same round, median and range. Processor time, best of
one thread (OMP_NUM_THREADS=1), suffers less from whatever else runs. All must find one loss and one gradient.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".venv-peers/bin/python"
LOSSES = ("reverse_kl", "logprobs")
VARIANTS = ("dense", "read", "minimize", "trl_dense", "trl_chunked")


def measure(variant: str, loss: str, size: str, tokens: int) -> dict[str, float]:
    python = str(PEERS) if variant.startswith("trl") else sys.executable
    command = [python, str(HERE / "one.py"), variant, loss, *size.split("x"), str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def of_dense(rounds: list[dict[str, dict[str, float]]], variant: str, key: str) -> tuple[list[float], list[float]]:
    """A number of each round, and its ratio to the dense one's of the same round."""
    own = [found[variant][key] for found in rounds]
    return own, [mine / found["dense"][key] for mine, found in zip(own, rounds, strict=True)]


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", nargs="+", default=["49152x576", "151936x896"], help="VOCABULARYxWIDTH")
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--tokens", type=int, default=2048)
    options = parser.parse_args()
    variants = VARIANTS if PEERS.exists() else VARIANTS[:3]
    print("| loss | vocabulary | variant | time / dense | processor time / dense | peak / dense | peak, MiB |")
    print("|---|---|---|---|---|---|---|")
    for size in options.size:
        for loss in options.loss:
            rounds = [{v: measure(v, loss, size, options.tokens) for v in variants} for _ in range(options.rounds)]
            for variant in variants:
                for each in ("loss", "gradient"):
                    assert math.isclose(rounds[0][variant][each], rounds[0]["dense"][each], rel_tol=1e-4), variant
                peak, share = (statistics.median(peaks) for peaks in of_dense(rounds, variant, "peak"))
                row = (
                    loss,
                    size.split("x")[0],
                    variant,
                    *(spread(of_dense(rounds, variant, each)[1]) for each in ("seconds", "processor")),
                    f"{share:.2f}",
                    f"{peak / 2**20:.0f}",
                )
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
