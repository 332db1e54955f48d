"""Mutation testing: put each small fault into the loss math, in a copy of the project, and see a test fail.

    make mutants                       all four roles
    python tests/mutation/run.py surrogates [--list] [--again]

A mutant that no test kills must stand in `equivalent.toml` with the reason why it is the same function. Exit code 1
if one does not, or if a listed one is killed or no longer there.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
ROLES = ("advantages", "surrogates", "corrections", "weightings")
KILLED = ROOT / "build/mutants.json"
"""The mutants that some run has killed; tests only get stronger."""
TIMEOUT = 120
"""Seconds of processor time a mutant's tests may take; an endless loop is killed, too."""


def tests_of(role: str, mutant: Mutant | None) -> tuple[list[str], ...]:
    """The tests that a mutant must fail one of: those of its part, which are quick, then its formula and its laws.

    A part's tests are the files of `tests/<role>/` that name its class; its laws are the table's entries of its kind.
    """
    path = Path(mutant.path) if mutant else None
    classes = re.findall(r"^class (\w+)", (ROOT / path).read_text(), re.MULTILINE) if path else []
    own = [file for file in sorted((ROOT / "tests" / role).glob("test_*.py")) if _names(file, classes)]
    kind = f"{role} and {path.stem}" if path and own else role
    laws = [
        "tests/test_settings.py",
        "tests/explain/test_part_formulas.py",
        "tests/test_law_table.py",
        "-k",
        f"settings or part_formulas or ({kind})",
    ]
    return [str(file.relative_to(ROOT)) for file in own] or [f"tests/{role}"], laws


def _names(file: Path, classes: list[str]) -> bool:
    return any(re.search(rf"\b{name}\b", file.read_text()) for name in classes)


def survives(copy: Path, mutant: Mutant | None, role: str) -> bool:
    """Whether all tests pass, in a process of its own that starts with the heavy libraries already loaded."""
    path = copy / mutant.path if mutant else None
    before = path and (path.read_text(), path.stat().st_mtime)
    if path and mutant:
        path.write_text(mutant.source)
    child = os.fork()
    if child == 0:
        _run_tests(copy, tests_of(role, mutant), keep_bytecode=mutant is None)
    _, status = os.waitpid(child, 0)
    if path and before:
        path.write_text(before[0])
        os.utime(path, (before[1], before[1]))
    return status == 0


def _run_tests(copy: Path, stages: tuple[list[str], ...], *, keep_bytecode: bool) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
    sys.dont_write_bytecode = not keep_bytecode
    os.chdir(copy)
    sys.path[:0] = [str(copy / "src"), str(copy / "tests")]
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    code = 1
    try:
        for number, tests in enumerate(stages):
            # The import hook that checks shapes is there from the first time on, and may not be asked for again.
            again = ["-p", "no:jaxtyping", "-o", "addopts=--import-mode=importlib"] if number else []
            code = 1
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *again, *tests]))
            if code:
                break
    finally:
        os._exit(min(code, 255))


def load_libraries() -> None:
    """Import all that the project imports, then forget the project itself: its copy is imported in each child."""
    import grpo_kit

    for found in walk_packages(grpo_kit.__path__, "grpo_kit."):
        import_module(found.name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpo_kit"]:
        del sys.modules[name]
    import_module("torch").set_num_threads(1)


def worker(
    jobs: "multiprocessing.Queue[tuple[str, Mutant | None]]",
    done: "multiprocessing.Queue[tuple[str, Mutant | None, bool]]",
) -> None:
    """Take mutants until there are no more, in a copy of the project of its own."""
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "site", "runs", "__pycache__"))
        while True:
            role, mutant = jobs.get()
            if not role:
                return
            done.put((role, mutant, survives(copy, mutant, role)))


def main() -> int:
    """Run all mutants of some roles and compare the survivors with the list."""
    parser = argparse.ArgumentParser()
    parser.add_argument("roles", nargs="*", default=list(ROLES))
    parser.add_argument("--list", action="store_true", help="only count")
    parser.add_argument("--again", action="store_true", help="only what no run has killed yet (build/mutants.json)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    files = {role: sorted((ROOT / "src/grpo_kit" / role).glob("*.py")) for role in arguments.roles}
    work = [(role, mutant) for role, paths in files.items() for path in paths for mutant in mutants(ROOT, path)]
    print(f"{len(work)} mutants of {sum(map(len, files.values()))} files", flush=True)
    if arguments.list:
        return 0
    before = set(json.loads(KILLED.read_text())) if arguments.again and KILLED.exists() else set()
    known = [(role, mutant, False) for role, mutant in work if mutant.key in before]
    todo = [(role, mutant) for role, mutant in work if mutant.key not in before]
    start, results = time.monotonic(), known + run(todo, arguments.roles, arguments.workers)
    KILLED.parent.mkdir(exist_ok=True)
    KILLED.write_text(json.dumps(sorted(before | {mutant.key for _, mutant, survived in results if not survived})))
    return report(results, arguments.roles, time.monotonic() - start)


def run(work: list[tuple[str, Mutant]], roles: list[str], workers: int) -> list[tuple[str, Mutant, bool]]:
    """Every mutant with whether it survived; first of all the tests must pass without one."""
    jobs, done = multiprocessing.Queue(), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=worker, args=(jobs, done)) for _ in range(workers)]
    for process in processes:
        process.start()
    for role in roles:
        jobs.put((role, None))
    sound = [done.get() for _ in roles]
    if broken := [role for role, _, passed in sound if not passed]:
        for process in processes:
            process.terminate()
        sys.exit(f"the tests of {', '.join(broken)} fail without any fault; mend them first")
    for job in [*work, *[("", None)] * workers]:
        jobs.put(job)
    results = []
    for number in range(len(work)):
        role, mutant, survived = done.get()
        results.append((role, mutant, survived))
        if (number + 1) % 50 == 0:
            print(f"[{number + 1}/{len(work)}]", flush=True)
        if survived:
            print(f"[{number + 1}/{len(work)}] survived: {mutant.path}:{mutant.line}: {mutant.name}", flush=True)
    for process in processes:
        process.join()
    return results


def report(results: list[tuple[str, Mutant, bool]], roles: list[str], seconds: float) -> int:
    """Print killed / total a role; 1 where the survivors are not the listed ones."""
    listed = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())["mutant"]
    reasons = {(entry["file"], entry["change"]): entry["reason"] for entry in listed}
    survivors = {(mutant.path, mutant.name): mutant for _, mutant, survived in results if survived}
    total, killed = Counter(role for role, _, _ in results), Counter(role for role, _, left in results if not left)
    for role in roles:
        print(f"{role}: {killed[role]} of {total[role]} mutants killed")
    unknown = {key: mutant for key, mutant in survivors.items() if key not in reasons}
    stale = [key for key in reasons if key[0].split("/")[2] in roles and key not in survivors]
    print(
        f"{len(results) - sum(killed.values())} survived, {len(survivors) - len(unknown)} of them listed as "
        f"equivalent; {seconds:.0f} s"
    )
    for mutant in unknown.values():
        print(f"NOT KILLED {mutant.path}:{mutant.line}\n  - {mutant.before}\n  + {mutant.after}")
    for file, change in stale:
        print(f"NO SURVIVOR though listed in equivalent.toml: {file}: {change}")
    return 1 if unknown or stale else 0


if __name__ == "__main__":
    sys.exit(main())
