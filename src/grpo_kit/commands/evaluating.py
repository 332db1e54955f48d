"""The command `grpo-kit eval`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_kit.commands import complete
from grpo_kit.commands.consoles import quiet_console
from grpo_kit.commands.plain_errors import mistakes


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A model (tiny:small, a folder, a hub name) or a run folder.",
            autocompletion=complete.run_folders,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_NAME",
            help="Questions: a file, a named set, or NAME=FILE; may be repeated. A run has its own questions.",
            autocompletion=complete.question_sets,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="A file's column for prompt or answer; may be repeated."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Which policy of a run.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Completions a question.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="0 (greedy) by default with one sample, else 1.")
    ] = None,
    top_p: Annotated[float, typer.Option(help="Nucleus mass kept.")] = 1.0,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest completion; 1024 by default, or what the model has room for.")
    ] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each set.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the samples.")] = 0,
    template: Annotated[str | None, typer.Option(help="The prompt, with {prompt} where the question goes.")] = None,
    system: Annotated[str | None, typer.Option(help="System message of a chat.")] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Chat by default where the tokenizer has a template.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends a completion; may be repeated.")] = None,
    few_shot: Annotated[Path | None, typer.Option(help="A JSONL file of worked examples to put in front.")] = None,
    shots: Annotated[int | None, typer.Option(min=1, help="How many of them; all by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Only a boxed answer counts.")] = False,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Completions decoded together.")] = 64,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="The run's own by default, else float32.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this JSON file.")] = None,
    completions: Annotated[
        Path | None, typer.Option(help="Write every completion with its verdict to this JSONL file.")
    ] = None,
) -> None:
    """Measure a model, or what a run trained, on questions with known answers."""
    from grpo_kit.evaluation.command import eval_command

    console = quiet_console()
    with mistakes():
        code = eval_command(
            model,
            data=data or [],
            columns=column or [],
            policy=policy,
            samples=samples,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            questions=questions,
            seed=seed,
            template=template,
            system=system,
            chat=chat,
            stop=stop or [],
            few_shot=few_shot,
            shots=shots,
            strict=strict,
            rows_per_batch=rows_per_batch,
            device=device,
            dtype=dtype,
            out=out,
            completions=completions,
            console=console,
        )
        raise typer.Exit(code)
