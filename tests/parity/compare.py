"""Compare the results of all sides: `python compare.py BATCHES OURS PAGE THEIRS ...`.

Prints the largest differences of every case, writes them into the page between its markers, and exits with 1 when one
is above the tolerance or an explanation is out of date.
"""

import sys
from pathlib import Path

import torch
from case import LEARNER, Case
from differences import DIFFERENCES

from cases import CASES

TOLERANCE = 1e-5
MEASURED = ("advantages", "loss", "gradient")
BEGIN, END = "<!-- parity: begin -->", "<!-- parity: end -->"


def gaps(ours, theirs) -> dict[str, float]:
    """The largest absolute difference of each measured value; infinite where one is not a number."""
    return {name: float((ours[name] - theirs[name]).abs().nan_to_num(torch.inf).max()) for name in MEASURED}


def worst(case: Case, ours, theirs, batches, *, without: str = "") -> dict[str, float]:
    """The largest differences over all batches, after the case's named ones but for one."""
    found = dict.fromkeys(MEASURED, 0.0)
    for name, result in theirs.items():
        for difference in case.differences:
            if difference != without:
                result = DIFFERENCES[difference].corrected(case, result, ours[name], batches[name])
        found = {key: max(found[key], gap) for key, gap in gaps(ours[name], result).items()}
    return found


def verdict(case: Case, ours, theirs, batches) -> str:
    """Equal, and after which differences; or what is wrong, in capitals."""
    if max(worst(case, ours, theirs, batches).values()) > TOLERANCE:
        return "DIFFERENT"
    for name in case.differences:
        if max(worst(case, ours, theirs, batches, without=name).values()) <= TOLERANCE:
            return f"OUT OF DATE: {name}"
    return ", after ".join(["equal", *(f"*{name}*" for name in case.differences)])


def shown(gap: float) -> str:
    """One digit, and no digit at all where only roundings are left."""
    return f"{gap:.0e}" if gap > 1e-12 else "< 1e-12"


def table(cases, found) -> str:
    """The table of the page."""
    lines = ["| algorithm | peer | advantages | loss | gradient | verdict |", "|---|---|---|---|---|---|"]
    for case in cases:
        cells = [case.name, case.peer, *(shown(gap) for gap in worst(case, *found[case]).values())]
        lines.append(f"| {' | '.join(cells)} | {verdict(case, *found[case])} |")
    return "\n".join(lines)


def explanations() -> str:
    """Every named difference."""
    return "\n".join(f"- *{name}* ({what.whose}): {what.why}" for name, what in DIFFERENCES.items())


def options(case: Case) -> str:
    """What was set on both sides of a case."""
    ours = ", ".join(f"`{setting.removeprefix(LEARNER + '.')}`" for setting in case.ours)
    theirs = ", ".join(f"`{key}={value!r}`" for key, value in case.theirs.items())
    return f"- {case.name}, {case.peer}: `{case.recipe}` {'with ' + ours if ours else 'as it is'}; theirs {theirs}"


if __name__ == "__main__":
    batches, ours, page = torch.load(sys.argv[1]), torch.load(sys.argv[2]), Path(sys.argv[3])
    theirs = {key: found for path in sys.argv[4:] for key, found in torch.load(path).items()}
    found = {case: (ours[case.key], theirs[case.key], batches) for case in CASES}
    print(table(CASES, found))
    settings = "\n".join(options(case) for case in CASES)
    before, after = page.read_text().split(BEGIN)[0], page.read_text().split(END)[1]
    written = f"{table(CASES, found)}\n\n## Differences\n\n{explanations()}\n\n## What is set equal\n\n{settings}"
    page.write_text(f"{before}{BEGIN}\n\n{written}\n\n{END}{after}")
    sys.exit(any(not verdict(case, *found[case]).startswith("equal") for case in CASES))
