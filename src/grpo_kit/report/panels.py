"""Which metrics are drawn together, under which heading, in which order."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SECTIONS = ("Held-out", "Rewards", "Updates", "Corrections and gaps", "Optimizer", "Sampling", "Speed", "Others")


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """Metrics that are drawn into one picture.

    Attributes:
        section: the heading it stands under.
        title: what it shows.
        key: the metric as docs/metrics.md names it.
        series: metrics with the name of each: who has it.
    """

    section: str
    title: str
    key: str
    series: tuple[tuple[str, str], ...]


def _of_terms(section: str, titles: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((section, title, f"learner/<learner>/<term>/{name}") for name, title in titles.items())


# Section, title, key as in docs/metrics.md. Names in <...> tell the lines of a panel apart, but for those in its title.
KNOWN = (
    ("Held-out", "Accuracy at temperature 1", "eval/<policy>/accuracy"),
    ("Held-out", "Greedy accuracy", "eval/<policy>/greedy"),
    ("Held-out", "pass@<k>", "eval/<policy>/pass@<k>"),
    ("Held-out", "Entropy (nats a token)", "eval/<policy>/entropy"),
    ("Held-out", "Completion length (tokens)", "eval/<policy>/length"),
    ("Held-out", "Completions without a verdict", "eval/<policy>/missing"),
    ("Held-out", "Standard error of the accuracy", "eval/<policy>/accuracy_stderr"),
    ("Rewards", "Total reward", "reward/<learner>/total"),
    ("Rewards", "Total reward of kept rows", "reward/<learner>/kept"),
    ("Rewards", "Total reward of greedy rows", "reward/<learner>/greedy"),
    ("Rewards", "Groups without a spread", "reward/<learner>/flat_groups"),
    ("Rewards", "Rows without a reward", "reward/<learner>/missing"),
    ("Rewards", "Coefficient of <component>", "coefficient/<component>"),
    *_of_terms(
        "Updates",
        {
            "ratio_mean": "Ratio to the anchor (mean)",
            "clip_fraction": "Clip fraction",
            "kl": "KL of the divergence",
            "coefficient": "Coefficient of the divergence",
            "log_ratio_of_<teacher>": "log(<teacher> / current), mean a token",
            "log_ratio_to_behavior": "log(current / behavior), mean a token",
            "advantage_abs": "Size of the advantage (mean)",
            "rows_without_advantage": "Rows without an advantage",
            "loss": "Loss (only its gradient means something)",
        },
    ),
    *_of_terms(
        "Corrections and gaps",
        {
            "effective_sample_size": "Effective sample size",
            "raw_effective_sample_size": "Effective sample size before bounds",
            "correction_mean": "Correction weight (mean)",
            "raw_chi_square": "Chi-square before bounds",
            "kept_tokens": "Tokens with a weight",
            "kept_rows": "Rows with a weight",
            "log_weight_token": "Log-weight a token (mean)",
            "log_weight_row": "Log-weight a row (mean)",
            "gap_mean": "Gap to the writer (mean)",
            "gap_max": "Gap to the writer (largest)",
            "gap_kl": "Gap to the writer (KL estimate)",
        },
    ),
    ("Optimizer", "Gradient norm", "learner/<learner>/grad_norm"),
    ("Optimizer", "Learning rate", "learner/<learner>/lr"),
    ("Optimizer", "Tokens trained on", "learner/<learner>/tokens"),
    ("Sampling", "Completion length (mean, longest)", "sampler/length_<of>"),
    ("Sampling", "Why rows ended (shares)", "sampler/stop_<reason>"),
    ("Sampling", "Sampler against trainer: <what>", "sampler/mismatch/<policy>/<what>"),
    ("Sampling", "Age of the writer (updates)", "sampler/age/<policy>"),
    ("Sampling", "Tokens written (share)", "sampler/written/<policy>"),
    ("Sampling", "Rows", "sampler/rows"),
    ("Sampling", "Tokens", "sampler/tokens"),
    ("Sampling", "Passes over the prompts", "sampler/epoch"),
    ("Sampling", "Rounds of sampling", "sampler/rounds"),
    ("Sampling", "Groups that the refill keeps (share)", "sampler/groups_kept"),
    ("Sampling", "Groups missing after a refill", "sampler/groups_short"),
    ("Sampling", "Rows left out as too old (share)", "sampler/too_old"),
    ("Sampling", "Buffer written anew before the step", "sampler/refreshed"),
    ("Sampling", "Age of the buffer (steps)", "sampler/buffer_age"),
    ("Sampling", "Tokens written by a refresh", "sampler/tokens_renewed"),
    ("Sampling", "Overlap of student and teacher", "sampler/overlap"),
    ("Sampling", "Engine got new weights", "sampler/synced/<policy>"),
    ("Sampling", "Pass rate of the prompts (mean)", "data/pass_rate"),
    ("Sampling", "Prompts drawn so far (share)", "data/seen"),
    ("Sampling", "Prompts that count, by their weights", "data/effective_prompts"),
    ("Speed", "Tokens sampled a second", "time/tokens_per_second"),
    ("Speed", "Seconds a step", "time/step"),
    ("Speed", "Model FLOPs a step, by policy and stage", "flops/<policy>/<stage>"),
)
LEFT_OUT = re.compile(r"step|time/(?!tokens_per_second|step).*|learner/[^/]+/version|eval/[^/]+/pass@1")
"""Drawn otherwise, the same as another, or not worth a picture."""
NAME = re.compile(r"<(\w+)>")
PATTERNS = [(*known, re.compile(NAME.sub(r"(?P<\1>[^/]+)", known[2]))) for known in KNOWN]


def panels(keys: Iterable[str], components: Sequence[str]) -> list[Panel]:
    """Every metric in some panel, in the order of the sections; `components` are the rewards that recipes name."""
    found: dict[tuple[str, str], tuple[int, str, list[tuple[str, str]]]] = {}
    for metric in sorted(keys):
        place = _place(metric, components)
        if place is not None:
            rank, section, title, key, who = place
            found.setdefault((section, title), (rank, key, []))[2].append((who, metric))
    ordered = sorted(found.items(), key=lambda item: (SECTIONS.index(item[0][0]), item[1][0], _natural(item[0][1])))
    return [
        Panel(section=section, title=title, key=key, series=tuple(series))
        for (section, title), (_, key, series) in ordered
    ]


def _place(metric: str, components: Sequence[str]) -> tuple[int, str, str, str, str] | None:
    """Rank, section, title, key and name of one metric; None for one that is not drawn by itself."""
    if LEFT_OUT.fullmatch(metric):
        return None
    for rank, (section, title, key, pattern) in enumerate(PATTERNS):
        if match := pattern.fullmatch(metric):
            names, in_title = match.groupdict(), NAME.findall(title)
            who = "/".join(value for name, value in names.items() if name not in in_title)
            return rank, section, NAME.sub(lambda name, names=names: names[name[1]], title), key, who
    last = len(PATTERNS)
    head, _, rest = metric.partition("/")
    who, _, name = rest.partition("/")
    if head == "reward" and name:
        for component in sorted(components, key=len, reverse=True):
            if name == component:
                return last, "Rewards", f"Component {name}", "reward/<learner>/<component>", who
            if name.startswith(f"{component}_"):
                status = name.removeprefix(f"{component}_")
                key = "reward/<learner>/<component>_<status>"
                return last + 1, "Rewards", f"Statuses of {component} (shares)", key, f"{who}: {status}"
        return last, "Rewards", f"Component {name}", "reward/<learner>/<component>", who
    return last + 2, "Others", metric, metric, ""


def _natural(title: str) -> list[tuple[bool, int, str]]:
    """So that pass@8 comes before pass@16."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", title)]
