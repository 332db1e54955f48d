"""The worker process behind the pool: a parent that has loaded math-verify, and a child of it that judges.

Jobs and verdicts are lines of JSON. For each job the child sets two alarms, of processor time and of real time, whose
default action ends the process: the kernel fires them even inside one long C call, where no Python code could. The
parent, which reads no input itself, then reports the death and forks the next child at once, with everything loaded.
The child is confined, see there: only the parent can fork, and no answer is read before.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from grpo_kit.grading.confine import confine

PRACTICE = (
    r"\frac{1}{2}\sqrt{3}+2^{10}",
    r"-\frac{8x^2}{9(x^2-2)^{5/3}}",
    r"3\cos(2t)+\sin^2(\theta)-\ln 5",
    r"\omega_{n}^{2}e^{-at}",
    r"\binom{10}{3}5!",
    r"\sum_{k=1}^{n}k^2",
    r"|x-1|+\log_2 8",
)
"""What the parent reads beside the first child's work, so that later children start with a parser that has learned."""


def main() -> None:
    """Serve jobs from standard input until it ends."""
    sys.set_int_max_str_digits(0)
    from grpo_kit.grading.judge import judge

    judge("x+1", "1+x")  # the parser's tables are made once, before the first fork
    _write({"ready": True})
    practice = iter(PRACTICE)
    while True:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                confine()
                _serve(judge)
                code = 0
            finally:
                os._exit(code)
        ended = _wait(child, judge, practice)
        if os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == 0:
            return
        alarm = os.WIFSIGNALED(ended) and os.WTERMSIG(ended) in (signal.SIGPROF, signal.SIGALRM)
        _write({"status": "timeout" if alarm else "error"})


def _wait(child: int, judge: Any, practice: Iterator[str]) -> int:
    """How the child ended. Beside its work the parent practices, for the next child's good: the parser learns."""
    for text in practice:
        judge(text, "0")
        found, ended = os.waitpid(child, os.WNOHANG)
        if found:
            return ended
    return os.waitpid(child, 0)[1]


def _serve(judge: Any) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin:
        job = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, job["limit"])
        signal.setitimer(signal.ITIMER_REAL, job["patience"])
        verdict = judge(job["gold"], job["answer"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write({"job": job["job"], "status": verdict.status, "equal": verdict.equal})


def _write(line: dict[str, Any]) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


if __name__ == "__main__":
    main()
