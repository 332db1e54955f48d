"""vLLM in this process, beside the policy whose weights it is handed."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator

from grpo_kit.engines.conversion import scored, settings_of, written
from grpo_kit.engines.probe import LENGTHS, verify
from grpo_kit.engines.role import Limits, Request, Scored, Written
from grpo_kit.engines.surroundings import own_chance, own_process, share_process_groups, started, stop
from grpo_kit.parts import as_table, did_you_mean, part
from grpo_kit.policies.policy import Policy

EXTRA = "needs vLLM: pip install 'grpo-kit[vllm]' (how on a machine without a GPU: docs/engines.md)"
GIB = 2**30
OURS = {
    "model": "the policy's weights",
    "tokenizer": "the policy's tokenizer",
    "kv_cache_memory_bytes": "kv_cache_gib",
    "logprobs_mode": "the log-probabilities of the distribution really sampled from",
    "trust_remote_code": "what the policy does",
    "generation_config": "none but the recipe's own settings",
    "skip_tokenizer_init": "never, since stop strings need the tokenizer",
}
"""Arguments of vLLM that are decided elsewhere, and where; beside the keys of their own."""


@part("in_process")
class InProcess:
    r"""vLLM (arXiv:2309.06180) in this process and on this machine, started from the policy's weights.

    It gives the log-probabilities of the distribution really sampled from (`logprobs_mode = "processed_logprobs"`). New
    weights are handed over tensor by tensor (vLLM's `reload_weights`), or through a temporary folder where vLLM uses
    several GPUs; then its prefix cache is dropped. At the start and after every sync it and the policy score the same
    tokens, and a run whose engine has other weights ends with an error. Needs the extra:
    `pip install 'grpo-kit[vllm]'`.

    Attributes:
        dtype: precision that it computes in; left out: the policy's own (float32 for a float64 policy).
        max_model_len: most tokens of a row, prompt and completion, in its cache; left out: what the model has room for.
        gpu_memory_utilization: share of each GPU's memory (without a GPU: of the machine's) that it takes for weights
            and cache, in (0, 1]; the policies need the rest.
        kv_cache_gib: memory for its cache in GiB instead; then `gpu_memory_utilization` only bounds what there is.
        tensor_parallel_size: GPUs that share one copy of the model.
        enforce_eager: compile nothing: starts faster, writes slower.
        max_logprobs: most of the likeliest tokens that it can be asked for when it scores.
        options: other arguments of `vllm.LLM`, such as `max_num_seqs`.
    """

    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    max_model_len: Annotated[int, Field(gt=sum(LENGTHS))] | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.3
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    tensor_parallel_size: Annotated[int, Field(ge=1)] = 1
    enforce_eager: bool = False
    max_logprobs: Annotated[int, Field(ge=1)] = 20
    options: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("options")
    @classmethod
    def _decided_once(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in options:
            if name in OURS:
                raise ValueError(f"'{name}' is decided by {OURS[name]}; remove it")
            if name in cls.__dataclass_fields__:
                raise ValueError(f"'{name}' is a key of its own, beside options; give it there")
        return options

    def __hash__(self) -> int:
        """Hash of the settings; mappings have none of their own."""
        return hash(json.dumps(as_table(self), sort_keys=True, default=repr))

    def absent(self) -> str | None:
        """Why it cannot start here: without vLLM, or with an option that vLLM does not have."""
        if find_spec("vllm") is None:
            return EXTRA
        if self.options:
            from vllm import EngineArgs  # pyright: ignore[reportMissingImports]

            known = [field.name for field in fields(EngineArgs)]
            for name in self.options:
                if name not in known:
                    return f"options: vLLM has no argument '{name}'.{did_you_mean(name, known)}"
        return None

    def __call__(self, policy: Policy) -> "RunningInProcess":
        """Start vLLM with the policy's weights; ValueError where it does not start, or computes something else."""
        if problem := self.absent():
            raise ValueError(f"policy '{policy.name}': its engine {problem}")
        running = RunningInProcess(self, policy)
        try:
            if policy.has_weights:
                running.prove(policy)
        except ValueError:
            running.close()
            raise
        return running

    def arguments(self, policy: Policy, model: str) -> dict[str, Any]:
        """What `vllm.LLM` is started with, for the policy's model in a folder (or under a name)."""
        given = {"max_model_len": self.max_model_len}
        if self.kv_cache_gib is not None:
            given["kv_cache_memory_bytes"] = int(self.kv_cache_gib * GIB)
        return {
            "use_tqdm_on_load": False,
            "disable_log_stats": True,
            **self.options,
            **given,
            "model": model,
            "dtype": self.dtype or _precision(policy),
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "tensor_parallel_size": self.tensor_parallel_size,
            "enforce_eager": self.enforce_eager,
            "max_logprobs": self.max_logprobs,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "trust_remote_code": type(policy.model).__module__.startswith("transformers_modules"),
        }


class RunningInProcess:
    """vLLM at work for one policy, see `InProcess`."""

    def __init__(self, settings: InProcess, policy: Policy) -> None:
        """Start it; ValueError says why it does not start."""
        with TemporaryDirectory(prefix="grpo-kit-") as folder, own_process():
            from vllm import LLM  # pyright: ignore[reportMissingImports]

            share_process_groups()
            model = folder if policy.has_weights else str(policy.model.config.name_or_path)
            if policy.has_weights:
                policy.save_whole(Path(folder))
            arguments = settings.arguments(policy, model)
            try:
                self._llm: Any = LLM(**arguments)
            except Exception as error:  # of many kinds
                raise ValueError(f"policy '{policy.name}': vLLM does not start: {_reason(error)}") from error
        started(self._llm)
        self.policy, self.version, self.dtype = policy.name, policy.version, str(arguments["dtype"])
        self.max_logprobs = settings.max_logprobs
        self.max_model_len = int(self._llm.model_config.max_model_len)
        whole = int(self._llm.model_config.get_vocab_size())
        self.allowed = list(range(policy.vocabulary)) if policy.vocabulary < whole else None
        self._llm.update_weight_version(str(policy.version))

    def write(self, requests: Sequence[Request], limits: Limits) -> list[list[Written]]:
        """The completions of every request; see `Running`. ArithmeticError where the model gives no distribution."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        longest = max((len(request.prompt) for request in requests), default=0)
        self._has_room(longest, limits.max_new_tokens)
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        settings = [SamplingParams(**settings_of(request, limits, self.allowed)) for request in requests]
        outputs = self._generate(prompts, settings)
        found = [[written(completion, limits) for completion in output.outputs] for output in outputs]
        for number, completions in enumerate(found):
            if any(math.isnan(value) for completion in completions for value in completion.logprobs):
                raise ArithmeticError(
                    f"policy '{self.policy}' (version {self.version}) gives prompt {number} no distribution (NaN) in "
                    "its engine. Its weights are damaged; lower the learning rate"
                )
        return found

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]], top_k: int
    ) -> list[Scored]:
        """What the model says of completions; see `Running`."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        if top_k > self.max_logprobs:
            raise ValueError(
                f"policy '{self.policy}': asked for the {top_k} likeliest tokens, and its engine gives "
                f"{self.max_logprobs}. Raise max_logprobs of the engine"
            )
        rows = [(*prompt, *completion) for prompt, completion in zip(prompts, completions, strict=True)]
        self._has_room(max(map(len, rows), default=0), 1)  # vLLM always writes a token
        settings = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=top_k, detokenize=False)
        outputs = self._generate([{"prompt_token_ids": list(row)} for row in rows], settings)
        starts = map(len, prompts)
        return [
            scored(output.prompt_logprobs, row, start, top_k)
            for output, row, start in zip(outputs, rows, starts, strict=True)
        ]

    def sync(self, policy: Policy) -> None:
        """Take the policy's weights, drop what was computed with the old ones; ValueError if they did not arrive."""
        with torch.no_grad():
            self._load(policy)
        if not self._llm.reset_prefix_cache():
            raise ValueError(
                f"policy '{policy.name}': its engine is at work and keeps what it computed with old weights"
            )
        self._llm.update_weight_version(str(policy.version))
        self.prove(policy)
        self.version = policy.version

    def prove(self, policy: Policy) -> None:
        """ValueError unless it computes what the policy does, see `engines.probe`."""
        try:
            verify(self, policy, self.dtype)
        except ValueError:
            raise
        except Exception as error:  # of many kinds, such as a model that no kernel is for
            raise ValueError(f"policy '{policy.name}': vLLM cannot run its model: {_reason(error)}") from error

    def close(self) -> None:
        """Stop vLLM and free its memory."""
        llm, self._llm = self._llm, None
        if llm is not None:
            stop(llm)

    def _generate(self, prompts: Any, settings: Any) -> list[Any]:
        with own_chance():
            return self._llm.generate(prompts, settings, use_tqdm=False)

    def _load(self, policy: Policy) -> None:
        """Hand the weights over; through a folder where vLLM works in processes of its own."""
        engine = self._llm.llm_engine
        if type(engine.engine_core).__name__ == "InprocClient" and self._llm.get_world_size() == 1:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": policy.whole_weights()})
            return
        with TemporaryDirectory(prefix="grpo-kit-") as folder:
            policy.save_whole(Path(folder))
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})

    def _has_room(self, longest: int, new: int) -> None:
        if longest + new > self.max_model_len:
            raise ValueError(
                f"policy '{self.policy}': a row of {longest} tokens with {new} new ones does not fit into its engine's "
                f"max_model_len = {self.max_model_len}. Raise it, or lower max_new_tokens or max_prompt_tokens"
            )


def _precision(policy: Policy) -> str:
    own = str(policy.autocast or policy.model.dtype).removeprefix("torch.")
    return "float32" if own == "float64" else own


def _reason(error: BaseException) -> str:
    """The line that says most: the first of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
