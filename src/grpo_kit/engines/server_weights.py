"""The weights of a vLLM server: sent to it through files, labeled, and sent again when it was started anew."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from grpo_kit.engines.http import AwayError, BrokenError, Call, RefusedError
from grpo_kit.engines.served_model import UNTOUCHED, Ask, UnfitError, weight_version
from grpo_kit.policies.policy import Policy

CLOSE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.1}
"""Mean difference, in nats, of what equal weights say of a row in other company, by the precision of computing."""
DEVELOPMENT = "VLLM_SERVER_DEV_MODE=1"


@dataclass(kw_only=True, slots=True)
class ServerWeights:
    """What weights a server is to have, and whether it has them.

    Attributes:
        ask: sends it one request.
        probe: what it says of a fixed row, in nats a token.
        dtype: the precision that it computes in.
        folder: where weights for it are saved; None for a temporary folder.
        label: of its weights, which it is to report; None for a server that reports none.
        saved: the weights that it was last sent; None before.
        said: what it is to say of the fixed row; empty while that is not known.
    """

    ask: Ask
    probe: Callable[[], tuple[float, ...]]
    dtype: str
    folder: Path | None
    label: str | None = None
    saved: Path | None = None
    said: tuple[float, ...] = ()
    name: str = field(default_factory=lambda: f"grpo-kit-{uuid4().hex[:8]}")
    made: Path | None = None
    count: int = 0

    def begin(self, policy: Policy) -> None:
        """Find out what the server has; a policy whose weights are not here cannot tell others from its own."""
        self.label = weight_version(self.ask)
        if not policy.has_weights and self.replaced:
            raise UnfitError(f"its weights were replaced (by '{self.label}'). Start it anew with the policy's model")
        self.remember()

    @property
    def replaced(self) -> bool:
        """Whether somebody sent the server weights since it was started."""
        return self.label not in (None, UNTOUCHED)

    @property
    def replaceable(self) -> bool:
        """Whether the server takes weights."""
        return self.label is not None

    def remember(self) -> None:
        """Hold on to what the server says with the weights that it has now."""
        self.said = self.probe()

    def settle(self) -> bool:
        """Make sure that the server has its weights; False where it had lost them and was sent them again."""
        if self.label is not None:
            now = weight_version(self.ask)
            if now == self.label and self.saved is not None:
                return True
            if now is None:
                raise UnfitError(f"it was started anew without {DEVELOPMENT}, so that it cannot be sent its weights")
            if self.saved is not None and now == UNTOUCHED:
                self.send(self.saved, self.label)
                self._refuse_others()
                return False
            if now != self.label:
                raise UnfitError(f"its weights were replaced (by '{now}', not '{self.label}'): another run uses it")
        self._refuse_others()
        return True

    def save(self, policy: Policy) -> Path:
        """Write a policy's weights where the server can read them."""
        try:
            if self.made is None:
                self.made = Path(tempfile.mkdtemp(prefix="grpo-kit-")) if self.folder is None else self.folder
                self.made = self.made.absolute() / self.name
            self.count += 1
            folder = self.made / f"{self.count}-version-{policy.version}"
            folder.mkdir(parents=True)
            policy.save_whole(folder)
        except OSError as error:
            problem = error.strerror or str(error)
            raise ValueError(f"weights for a server cannot be saved in {self.made or self.folder}: {problem}") from None
        return folder

    def send(self, folder: Path, label: str) -> None:
        """Let the server load weights, forget what it computed with others, and label them."""
        if not self.replaceable:
            raise UnfitError(f"it takes no weights: it was started without {DEVELOPMENT}")
        kwargs = {"weights_path": str(folder)}
        try:
            self.ask(Call(path="/collective_rpc", body={"method": "reload_weights", "kwargs": kwargs}))
        except (RefusedError, BrokenError) as error:  # vLLM says 500 for a folder that is not there, too
            remedy = "weights_folder must be a folder that the server sees under the same name"
            kind = BrokenError if isinstance(error, BrokenError) else UnfitError
            raise kind(f"it could not load the weights in {folder} ({error}); {remedy}") from None
        done = self.ask(Call(path="/reset_prefix_cache", body={}))
        if isinstance(done, dict) and done.get("success") is False:
            raise AwayError("it is still at work with old weights (another user's requests)")
        self.ask(Call(path="/update_weight_version", body={"new_version": label}))
        before, self.saved, self.label, self.said = self.saved, folder, label, self.said if folder == self.saved else ()
        if before is not None and before != folder:
            shutil.rmtree(before, ignore_errors=True)

    def close(self) -> None:
        """Remove the saved weights."""
        if self.made is not None:
            shutil.rmtree(self.made if self.folder is not None else self.made.parent, ignore_errors=True)
            self.made = None

    def _refuse_others(self) -> None:
        """UnfitError where the server does not say what it is to say."""
        if not self.said:
            return
        gaps = [abs(new - old) for new, old in zip(self.probe(), self.said, strict=True)]
        if (gap := sum(gaps) / len(gaps)) > CLOSE[self.dtype]:
            raise UnfitError(
                f"it has other weights than before: on a fixed row its log-probabilities moved by {gap:.2g} nats a "
                "token. Start it with the same model as at first"
            )
