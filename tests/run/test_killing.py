"""`grpo-kit run` killed at moments drawn over all it does, and on a disk that is full: it goes on to the bit."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from grpo_kit.checkpoints import all_in
from grpo_kit.run.resume import resume
from run.killing import content

HERE = Path(__file__).parent
KIT = Path(sys.executable).with_name("grpo-kit")
SETTINGS = ["data.rows=64", "steps=4", "prompts_per_step=2", "sampler.samples=4", "evaluation.questions=2"]
SETTINGS += ["evaluation.samples=2", "evaluation.every=2", "checkpoints.every=1", "log_samples=2"]


@pytest.mark.slow
def test_thirty_kills_change_nothing():
    """GRPO, CoDistill, OPD, Semi-OPD, and Semi-OPD whose buffer is written anew; `make kills` is the longer lane."""
    command = [sys.executable, str(HERE / "killing.py"), "--kills", "30", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same to the bit") == 5, done.stdout


def run_in(disk: Path, kib: int, copy: Path) -> subprocess.CompletedProcess:
    """A run whose folder is on a disk of its own of so many KiB, and what it left there."""
    settings = " ".join(f"--set {setting}" for setting in SETTINGS)
    script = f"""mount -t tmpfs -o size={kib}k none {disk} || exit 77
    {KIT} run grpo {settings} --out {disk}/out; code=$?
    cp -r {disk}/. {copy}; exit $code"""
    return subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    command = [str(KIT), "run", "grpo", "--out", str(folder), *(part for own in SETTINGS for part in ("--set", own))]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no namespaces: a small disk cannot be mounted")
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.7, 0.9, 0.98])
def test_a_disk_too_small_for_the_run_loses_nothing(whole, tmp_path, share):
    """Full at another file each time: a line, a checkpoint, the weights, the curves."""
    size = sum(file.stat().st_size for file in whole.rglob("*") if file.is_file())
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    copy.mkdir()
    done = run_in(disk, max(16, int(size * share / 1024)), copy)
    if done.returncode == 77:
        pytest.skip("a small disk cannot be mounted here")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "No space left on device" in said or "cannot be" in said
    if not (copy / "out").exists():
        assert "the run folder" in said
        return
    assert all(own.fault() is None for own in all_in(copy / "out" / "checkpoints"))
    assert resume(copy / "out", settings=[], allow_code=False, console=Console(quiet=True)).run() == 0
    assert content(copy / "out") == content(whole)
