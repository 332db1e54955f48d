"""What is said at the end of a run."""

from rich.console import Console

from grpo_kit import read_recipe
from grpo_kit.run.results import closing_table


def test_the_closing_table_has_each_policys_own_numbers():
    """Of two policies with other numbers; one that an evaluation lacks is a dash."""
    before = {"eval/small/accuracy": 0.21, "eval/large/accuracy": 0.42, "eval/small/greedy": 0.9}
    after = {"eval/small/accuracy": 0.81, "eval/large/accuracy": 0.7}
    heading, table = closing_table(read_recipe("codistill"), [(0, before), (50, {}), (100, after)])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert heading == "codistill: held-out questions, step 0 -> 100"
    (accuracy,) = [line for line in lines if "accuracy" in line]
    assert [cell.strip() for cell in accuracy.split("│")[1:-1]] == ["accuracy", "0.210 -> 0.810", "0.420 -> 0.700"]
    (greedy,) = [line for line in lines if "greedy" in line]
    assert [cell.strip() for cell in greedy.split("│")[1:-1]] == ["greedy", "0.900 -> -", "- -> -"]
