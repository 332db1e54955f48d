"""The tiny pair: two small real models, shipped with the package, that play unreliable pretrained models."""

from pathlib import Path

NAMES = ("small", "large")


def tiny_path(name: str) -> Path:
    """The folder of one of the pair; `warm_up` remakes both."""
    if name not in NAMES:
        raise ValueError(f"tiny model '{name}' does not exist. Known: {', '.join(NAMES)}.")
    return Path(__file__).parent / name
