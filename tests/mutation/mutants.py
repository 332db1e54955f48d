"""Every small fault that can be made in a file: cosmic-ray's operators, less those that cannot matter."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.plugins import get_operator, operator_names

SWAPS = {
    "ReplaceBinaryOperator": ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "BitAnd_BitOr", "BitOr_BitAnd"),
    "ReplaceComparisonOperator": (
        *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
        *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    ),
}
"""Of an operator that is replaced by every other one, the replacements that somebody might have written."""
LEFT_OUT = ("RemoveDecorator", "VariableReplacer", "VariableInserter", "ExceptionReplacer")
"""Declarations, not arithmetic (`@part`, `@property`); and operators that need arguments."""


@dataclass(frozen=True)
class Mutant:
    """One fault in one file.

    Attributes:
        path: the file, from the project's root.
        line: the number of the first changed line.
        before: that line as it is.
        after: the line with the fault.
        source: the whole file with the fault.
    """

    path: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """How a list of equivalent mutants refers to it: by its lines, not by their number."""
        return f"{self.before} -> {self.after}"

    @property
    def key(self) -> str:
        """Which mutant it is, for as long as its line is as it is."""
        return f"{self.path}: {self.name}"


def mutants(root: Path, path: Path) -> list[Mutant]:
    """Every mutant of a file that is another program than the file itself."""
    source = path.read_text()
    known = {_program(source)}
    found = []
    for operator in _operators():
        for mutated in _mutated(source, operator):
            try:
                program = _program(mutated)
            except SyntaxError:
                continue
            if program not in known:
                known.add(program)
                line, before, after = _change(source, mutated)
                found.append(Mutant(str(path.relative_to(root)), line, before, after, mutated))
    return found


def _operators() -> Iterator[type]:
    for name in operator_names():
        kind, _, swap = name.partition("/")[2].partition("_")
        if kind not in LEFT_OUT and (kind not in SWAPS or swap in SWAPS[kind]):
            yield get_operator(name)


def _mutated(source: str, operator: type) -> Iterator[str]:
    for occurrence in range(10_000):
        visitor = MutationVisitor(occurrence, operator())
        tree = visitor.walk(get_ast(source))
        if not visitor.mutation_applied:
            return
        yield tree.get_code()


def _program(source: str) -> str:
    """What runs: the syntax tree without docstrings and without the annotations of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
    return ast.dump(tree)


def _change(before: str, after: str) -> tuple[int, str, str]:
    old, new = before.splitlines(), after.splitlines()
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            return i + 1, " ".join("".join(old[i:i_end]).split()), " ".join("".join(new[j:j_end]).split())
    raise AssertionError("a mutant is another text")
