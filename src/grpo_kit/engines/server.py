"""A vLLM server (`vllm serve`) as an engine: its address, and how patient to be with it."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from grpo_kit.engines.http import Connection, address
from grpo_kit.engines.remote import RunningServer
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy


@part("server")
class Server:
    """A vLLM server that is running already, here or elsewhere; token ids go in and out.

    Before it is used the server is asked for its model, its tokenizer and its log-probabilities, which must be those of
    the policy. Weights go to it through files: they are saved to a folder that both see, the server loads them
    (`collective_rpc`, a route that vLLM has with the environment variable `VLLM_SERVER_DEV_MODE=1`), forgets what it
    computed with the old ones, and must then give the policy's log-probabilities. A server that was started anew in
    between gets them again, so that rows of one batch are of one version. Policies that learn need servers of their
    own; a server that one run sends weights to serves no other run. One address is one vLLM server, with whatever
    parallelism inside: several behind one address cannot be kept at one version.

    Attributes:
        url: its address, such as `http://localhost:8000`.
        model: the name under which it serves the model; left out, the only one that it has.
        dtype: the precision that it computes in, which decides how close its log-probabilities must be.
        timeout: seconds that an answer may take; a request's samples come in one answer.
        patience: seconds to wait for a server that is away, from its last answer on.
        concurrency: requests (prompts with all their samples) at a time.
        api_key_variable: name of the environment variable that holds the key which the server was started with. The
            key itself is in no recipe.
        weights_folder: a folder that the server sees, too, under the same name; a temporary one by default, which does
            for a server of the same user on the same machine. It holds one copy of the weights, two during a sync.
    """

    url: str
    model: Annotated[str, Field(min_length=1)] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    timeout: Annotated[float, Field(gt=0)] = 600.0
    patience: Annotated[float, Field(ge=0)] = 300.0
    concurrency: Annotated[int, Field(ge=1)] = 64
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    weights_folder: Annotated[str, Field(min_length=1)] | None = None

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        return address(url)

    def absent(self) -> str | None:
        """What this machine lacks to use the server; None where nothing is known to."""
        name = self.api_key_variable
        if name is not None and not os.environ.get(name):
            return f"the environment variable {name}, which is to hold the server's key, is not set"
        return None

    def __call__(self, policy: Policy) -> RunningServer:
        """Reach the server, wait for it if need be, and make sure that it serves the policy's model."""
        if absent := self.absent():
            raise ValueError(f"{absent}. Set it, or remove api_key_variable")
        running = RunningServer(
            policy=policy,
            connection=Connection(
                url=self.url,
                timeout=self.timeout,
                concurrency=self.concurrency,
                key=os.environ[self.api_key_variable] if self.api_key_variable else None,
            ),
            dtype=self.dtype,
            patience=self.patience,
            weights_folder=Path(self.weights_folder) if self.weights_folder else None,
        )
        running.begin(self.model)
        return running
