"""The command `grpo-kit compare`: its arguments."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_kit.commands import complete
from grpo_kit.commands.arguments import AllowCode, Settings, find_code
from grpo_kit.commands.consoles import quiet_console
from grpo_kit.commands.plain_errors import mistakes


def compare(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE...",
            help="Recipes, the first is the baseline; NAME=RECIPE.",
            autocompletion=complete.recipes,
        ),
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A TOML file with arms, seeds and grids, instead.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each recipe; 5 by default.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="Seeds count up from it; 0 by default.")] = None,
    set_: Settings = None,
    match: Annotated[
        bool, typer.Option("--match/--no-match", help="Give all recipes the first one's steps and prompts_per_step.")
    ] = True,
    questions: Annotated[int | None, typer.Option(min=1, help="Held-out questions; 2000 by default.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Completions of each; 8 by default.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder to create; runs/compare-<names> by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Folder of a comparison to go on with.")] = None,
    allow_code: AllowCode = False,
) -> None:
    """Run recipes with several seeds side by side, and say how far they differ and what they cost."""
    from grpo_kit.compare.command import compare as begin, go_on
    from grpo_kit.compare.reading import plan_of, read_plan

    console = quiet_console()
    find_code(allow_code)
    with mistakes():
        held_out = {"questions": questions, "samples": samples}
        given = {key: value for key, value in held_out.items() if value is not None}
        of_recipes = {"--seeds": seeds, "--first-seed": first_seed, "--set": set_, "--no-match": not match or None}
        of_recipes |= {f"--{key}": value for key, value in given.items()}
        if sum((bool(recipes), plan is not None, resume is not None)) != 1:
            raise typer.BadParameter("give recipes, or --plan, or --resume, and one of them", param_hint="RECIPE")
        unused = [name for name, value in of_recipes.items() if value is not None]
        if not recipes and unused:
            where = "a plan has its own" if plan else "a comparison that goes on keeps its own"
            raise ValueError(f"{', '.join(unused)}: {where}. Remove {'it' if len(unused) == 1 else 'them'}.")
        if resume is not None:
            if out is not None:
                raise ValueError("--out: a comparison that goes on stays in its folder. Remove it.")
            raise typer.Exit(go_on(resume, workers=workers, allow_code=allow_code, console=console))
        if plan is not None:
            wanted = read_plan(str(plan))
        else:
            wanted = plan_of(
                recipes or [],
                seeds=5 if seeds is None else seeds,
                first_seed=first_seed or 0,
                settings=set_ or [],
                match=match,
                held_out=given,
            )
        raise typer.Exit(begin(wanted, workers=workers, out=out, allow_code=allow_code, console=console))
