"""A stand-in for `vllm serve`: the part of its API that is used, answered by a real tiny policy, and it can fail."""

import copy
import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from grpo_kit import Policy


class Refused(Exception):
    """An error status with a message, as vLLM gives it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeServer:
    """A server for one policy's model; its attributes say how it is started and what goes wrong.

    `faults` are called before each completion request is answered, with its number from 1 on; they may call `die`.
    """

    def __init__(self, policy: Policy, **settings: Any) -> None:
        self.first = policy
        self.name, self.root, self.max_model_len, self.max_logprobs = "tiny", "tiny", 64, 20
        self.mode, self.development, self.key, self.slow = "raw_logprobs", True, None, 0.0
        self.fault: Callable[[int], None] = lambda number: None
        self.change: Callable[[str, Any], Any] = lambda path, answer: answer
        for name, value in settings.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.asked: list[tuple[str, Any]] = []
        self.count = self.at_once = self.most_at_once = 0
        self.lock, self.compute = threading.Lock(), threading.Lock()
        self.port = 0
        self.server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "FakeServer":
        """Begin with the original weights, on the same port as before."""
        self.model = copy.deepcopy(self.first.model)
        self.label, self.dead, self.resets = "default", False, 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                fake.handle(self, None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fake.handle(self, json.loads(body) if body else {})

        class Quiet(ThreadingHTTPServer):
            daemon_threads, block_on_close, request_queue_size = True, False, 128

            def handle_error(self, *_: Any) -> None:
                pass

        self.server = Quiet(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def die(self) -> None:
        """Drop every connection without an answer, as a killed process does."""
        self.dead = True
        server, self.server = self.server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def die_and_restart(self, after: float = 0.2) -> None:
        self.die()

        def later() -> None:
            time.sleep(after)
            self.start()

        threading.Thread(target=later, daemon=True).start()

    def handle(self, http: Any, body: Any) -> None:
        served = self.server
        if served is None or self.dead:
            http.close_connection = True
            return
        try:
            status, answer = 200, self.change(http.path, self.answer(http, body))
        except Refused as error:
            status, answer = error.status, {"error": {"message": str(error), "code": error.status}}
        if self.server is not served:  # it died while it was at work
            http.close_connection = True
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        http.send_response(status)
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def answer(self, http: Any, body: Any) -> Any:
        self.asked.append((http.path, body))
        if (
            self.key is not None
            and http.path.startswith("/v1")
            and http.headers["Authorization"] != f"Bearer {self.key}"
        ):
            raise Refused(401, "Unauthorized")
        routes = {"/v1/models": self.models, "/tokenize": self.tokenize, "/v1/completions": self.completions}
        if self.development:
            routes |= {"/weight_info": self.weight_info, "/collective_rpc": self.rpc}
            routes |= {"/reset_prefix_cache": self.reset, "/update_weight_version": self.relabel}
        if http.path not in routes:
            raise Refused(404, "Not Found")
        return routes[http.path](body)

    def models(self, _: Any) -> Any:
        names = self.name if isinstance(self.name, list) else [self.name]
        cards = [{"id": name, "root": self.root, "parent": None, "max_model_len": self.max_model_len} for name in names]
        return {"object": "list", "data": cards}

    def tokenize(self, body: Any) -> Any:
        ids = self.first.tokenizer(body["prompt"], add_special_tokens=body["add_special_tokens"])["input_ids"]
        return {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids}

    def weight_info(self, _: Any) -> Any:
        return {"weight_version": self.label}

    def rpc(self, body: Any) -> Any:
        assert body["method"] == "reload_weights"
        folder = Path(body["kwargs"]["weights_path"])
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise Refused(500, f"Cannot find any model weights with `{folder}`")
        with self.compute:
            self.model.load_state_dict({k: v for f in files for k, v in load_file(f).items()}, strict=False)
        return {"results": [None]}

    def reset(self, _: Any) -> Any:
        self.resets += 1
        return {"success": True}

    def relabel(self, body: Any) -> Any:
        self.label = body["new_version"]
        return {"success": True, "new_version": self.label}

    def completions(self, body: Any) -> Any:
        with self.lock:
            self.count += 1
            number = self.count
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.fault(number)
            time.sleep(self.slow)
            with self.compute:
                return self._completions(body)
        finally:
            with self.lock:
                self.at_once -= 1

    @torch.no_grad()
    def _completions(self, body: Any) -> Any:
        prompt, vocabulary = body["prompt"], self.model.config.vocab_size
        if body["model"] != self.name:
            raise Refused(404, f"The model `{body['model']}` does not exist.")
        if max(prompt) >= vocabulary:
            raise Refused(400, f"Token id {max(prompt)} is out of vocabulary")
        if len(prompt) + 1 > self.max_model_len:
            raise Refused(400, f"This model's maximum context length is {self.max_model_len} tokens.")
        if (k := body.get("prompt_logprobs") or 0) > self.max_logprobs:
            raise Refused(
                400, f"Requested prompt logprobs of {k}, which is greater than max allowed: {self.max_logprobs}"
            )
        if not 0 <= body["temperature"] <= 2:
            raise Refused(400, f"temperature must be in [0, 2], got {body['temperature']}.")
        choices = [self.choice(body, index) for index in range(body.get("n", 1))]
        return {"id": "x", "object": "text_completion", "model": self.name, "choices": choices, "usage": {}}

    def next_logits(self, ids: list[int]) -> torch.Tensor:
        return self.model(input_ids=torch.tensor([ids])).logits[0, -1]

    def choice(self, body: Any, index: int) -> Any:
        prompt, temperature = body["prompt"], body["temperature"]
        generator = torch.Generator().manual_seed((body.get("seed", 0) + index) % 2**63)
        tokens: list[int] = []
        logprobs: list[float] = []
        tops: list[dict[str, float]] = []
        finish, reason = "length", None
        for _ in range(body["max_tokens"]):
            raw = self.next_logits([*prompt, *tokens])
            drawn = raw / temperature if temperature else raw
            if body["top_k"]:
                drawn = torch.where(drawn >= drawn.topk(body["top_k"]).values[-1], drawn, -torch.inf)
            drawn = drawn.log_softmax(0)
            token = int(torch.multinomial(drawn.exp(), 1, generator=generator) if temperature else drawn.argmax())
            shown = drawn if self.mode == "processed_logprobs" else raw.log_softmax(0)
            tokens.append(token)
            logprobs.append(float(shown[token]))
            best = shown.topk(body.get("logprobs") or 1)
            tops.append({f"token_id:{i}": v for i, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)})
            if token in body.get("stop_token_ids", []):
                finish, reason = "stop", token
                break
            text = self.first.tokenizer.decode(tokens)
            if found := [stop for stop in body.get("stop", []) if stop in text]:
                finish, reason = "stop", found[0]
                break
        said = None
        if body.get("logprobs") is not None:
            said = {"tokens": [], "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": []}
        return {
            "index": index,
            "text": self.first.tokenizer.decode(tokens),
            "finish_reason": finish,
            "stop_reason": reason,
            "token_ids": tokens,
            "prompt_token_ids": prompt,
            "logprobs": said,
            "prompt_logprobs": self.of_prompt(prompt, body["prompt_logprobs"]) if "prompt_logprobs" in body else None,
        }

    def of_prompt(self, prompt: list[int], k: int) -> list[Any]:
        """None, then each token's entry: itself with its rank, and the k likeliest."""
        logprobs = self.model(input_ids=torch.tensor([prompt])).logits[0].log_softmax(-1)
        entries: list[Any] = [None]
        for token, row in zip(prompt[1:], logprobs[:-1], strict=True):
            best = row.topk(k).indices.tolist() if k else []
            ranks = {token: int((row >= row[token]).sum())} | {id_: place + 1 for place, id_ in enumerate(best)}
            said = {str(i): {"logprob": float(row[i]), "rank": r, "decoded_token": "x"} for i, r in ranks.items()}
            entries.append(dict(reversed(said.items())))  # in no order that may be relied on
        return entries


@contextmanager
def serving(policy: Policy, **settings: Any):
    """A fake server that is there inside the block."""
    server = FakeServer(policy, **settings).start()
    try:
        yield server
    finally:
        server.die()
