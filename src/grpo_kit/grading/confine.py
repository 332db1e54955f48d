"""What the process that judges answers may still do: compute. A net below the parser, should an answer ever be run.

Limits of the kernel forbid files and processes; an audit hook, which cannot be taken off again, refuses every event of
Python that judging does not need. It is no sandbox against native code; docs/security.md says what it stops.
"""

import os
import resource
import sys
from collections.abc import Mapping
from typing import Any

MEMORY = 4 * 2**30
"""Bytes of address space; a job that wants more has status `error`."""
PACKAGES = ("sympy", "mpmath", "latex2sympy2_extended", "math_verify", "antlr4", "encodings", "grpo_kit.grading")
"""Of these, modules may still be loaded: sympy loads many when they are first needed."""
HARMLESS = frozenset(
    {"exec", "compile", "marshal.loads", "array.__new__", "builtins.id", "code.__new__", "object.__getattr__"}
    | {
        "function.__new__",
        "sys._getframe",
        "sys._getframemodulename",
        "sys.excepthook",
        "sys.unraisablehook",
        "time.sleep",
    }
)
"""Events of Python (PEP 578) that reach nothing outside; modules are loaded and sympy reads numbers by the first."""
UNWATCHED = {
    *("mkfifo", "mknod", "chroot", "memfd_create", "openpty", "login_tty", "setns", "unshare"),
    *("fork_exec", "pidfd_open", "pidfd_send_signal", "setpriority"),
    *("sched_setaffinity", "sched_setparam", "sched_setscheduler"),
}
"""Functions of the modules below that do reach outside, and of which Python tells no hook."""
NATIVE = ("ctypes", "_ctypes", "cffi", "_cffi_backend", "mmap", "_posixsubprocess", "_xxsubinterpreters")
NEEDED = ("PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "SYSTEMROOT")
NEEDED_FAMILIES = ("LC_", "LD_", "DYLD_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_")


def environment(whole: Mapping[str, str]) -> dict[str, str]:
    """What a worker needs of the environment: where Python and its libraries are, and the language; no secrets.

    Example:
        >>> environment({"PATH": "/bin", "LC_ALL": "C", "HF_TOKEN": "hf_abc"})
        {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    return {name: value for name, value in whole.items() if name in NEEDED or name.startswith(NEEDED_FAMILIES)}


def confine() -> None:
    """Confine this process, for good: no files, processes, signals, sockets, nor modules but those of `PACKAGES`.

    Its standard input and output stay, as pipes; its error stream is closed off. What is refused raises
    PermissionError, or ImportError, inside the code that asked for it.
    """
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    # Of files no byte can be written; NPROC counts the user's processes, and binds everyone but root.
    most = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0, resource.RLIMIT_NPROC: 0, resource.RLIMIT_AS: MEMORY}
    for limit, value in most.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    _take_away()
    sys.addaudithook(_hook())


def _take_away() -> None:
    """Take functions that no hook hears of, and the doors to native code, out of all modules."""
    modules = {name: sys.modules.get(name) for name in ("os", "posix", "signal", "_signal", "_posixsubprocess")}
    gone = {id(vars(module)[name]) for module in modules.values() if module for name in UNWATCHED & vars(module).keys()}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in names.items() if id(value) in gone]:
            del names[name]
    for name in NATIVE:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]  # so that its import fails


def _hook() -> Any:
    """The audit hook. It reads nothing that running code could change: no globals, no names of modules."""
    harmless, packages = HARMLESS, tuple(f"{name}." for name in PACKAGES)
    folders = tuple(
        f"{folder}{os.sep}" for name in PACKAGES for folder in getattr(sys.modules.get(name), "__path__", ())
    )
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    exactly, text, number, refused, absent = type, str, int, PermissionError, ImportError

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in harmless:
            return
        if event == "import":
            name, file, *_ = arguments
            if not f"{name}.".startswith(packages) or not (
                file is None or (exactly(file) is text and file.startswith(folders) and "/../" not in file)
            ):
                raise absent("refused where answers are judged")
        elif event in ("object.__setattr__", "object.__delattr__"):
            if arguments[1] == "__code__":
                raise refused("refused where answers are judged")
        elif event in ("open", "os.listdir", "os.scandir"):
            path, _, flags = arguments if event == "open" else (f"{arguments[0]}/.py", None, 0)
            if (
                exactly(path) is not text
                or not path.startswith(folders)
                or "/../" in path
                or not path.endswith((".py", ".pyc"))
                or exactly(flags) is not number
                or flags & writing
            ):
                raise refused("refused where answers are judged")
        else:
            raise refused("refused where answers are judged")

    return hook
