"""Nothing that is loaded gets to run code: no call in the source that could, and hostile files for every reader."""

import ast
import hashlib
import json
import os
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from grpo_kit import PolicySpec
from grpo_kit.buffers.shards import read_shard
from grpo_kit.checkpoints import CheckpointError, newest, save
from grpo_kit.config import RecipeError, read_recipe
from grpo_kit.data.dataset import DatasetRows
from grpo_kit.policies import load_policy
from grpo_kit.policies.load import configuration, load_tokenizer
from grpo_kit.policies.lora import Lora
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run.setup import open_recipe

SOURCE = Path(__file__).parents[2] / "src"
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "code",
    "codeop",
    "pty",
}
MODULES |= {"subprocess", "runpy", "ctypes", "cffi", "multiprocessing", "yaml", "importlib"}
CALLS = {"eval", "exec", "compile", "__import__", "import_module", "system", "popen", "fork", "execv", "execve"}
CALLS |= {"posix_spawn", "spawn", "unsafe_load", "full_load", "read_pickle", "run_path", "run_module", "sympify"}
CALLS |= {"parse_expr", "load_module", "exec_module", "loads_pickle"}
NAMES = {"eval", "exec", "compile"}
"""Of these only Python's own: a model has an `eval`, a pattern a `compile`."""
REASONS = {
    ("commands/catalog.py", "import_module"): "our own modules, by a table of ours",
    ("engines/surroundings.py", "import_module"): "a module of vLLM, by a name of ours",
    ("rewards/functions.py", "import_module"): "`module:function` of a recipe, with --allow-code",
    ("compare/pool.py", "subprocess"): "starts our own worker, without a shell",
    ("grading/pool.py", "subprocess"): "starts our own worker, without a shell",
    ("grading/worker.py", "fork"): "the worker's child, which is confined",
}
"""Where one of them stands all the same, and why that is right."""
IMPORTING = {"importlib", "importlib.import_module", "importlib.metadata", "importlib.resources", "importlib.util"}
"""Of `importlib`, what imports nothing by itself; calls of `import_module` are found as such."""


def suspicious(tree):
    """Every import and call that could run what a file holds: by name."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if (
                name.split(".")[0] in MODULES
                and name not in IMPORTING
                and not name.startswith(("importlib.metadata.", "importlib.resources.", "importlib.util."))
            ):
                yield name
        if isinstance(node, ast.Call):
            said = ast.unparse(node.func)
            last = said.rpartition(".")[2]
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if last in CALLS and not (last in NAMES and "." in said):
                yield last
            elif said in ("torch.load", "torch.jit.load", "torch.hub.load") and given.get("weights_only") != "True":
                yield said
            elif "allow_pickle" in given and given["allow_pickle"] != "False":
                yield "allow_pickle"
            elif given.get("shell", "False") != "False":
                yield "shell"
            elif given.get("trust_remote_code", "False") not in ("False", "trust_remote_code", *ASKED):
                yield f"trust_remote_code={given['trust_remote_code']}"


ASKED = ("spec.trust_remote_code",)
"""What a recipe says, by its key; off by default and only with --allow-code."""


def test_no_call_of_ours_runs_what_a_file_holds():
    found = {
        (str(path.relative_to(SOURCE / "grpo_kit")), name)
        for path in SOURCE.rglob("*.py")
        for name in suspicious(ast.parse(path.read_text()))
    }
    assert found == REASONS.keys()


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "import importlib.machinery",
        "eval(text)",
        "__import__(name)",
        "importlib.import_module(name)",
        "os.system(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "numpy.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "sympy.sympify(text)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_the_search_finds(code):
    assert list(suspicious(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["re.compile(text)", "model.eval()", "torch.load(path, weights_only=True)", "from importlib.util import x"]
)
def test_the_search_passes(code):
    assert not list(suspicious(ast.parse(code)))


class Payload:
    """A pickle of it makes a folder when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    """The folder that a payload makes; a test with this fixture fails when it exists in the end."""
    path = tmp_path / "ran"
    yield str(path)
    assert not path.exists()


@pytest.fixture
def evil(mark):
    """A pickle that runs code."""
    return pickle.dumps(Payload(mark))


@pytest.fixture
def model(tmp_path):
    """A copy of a model's folder."""
    return Path(shutil.copytree(tiny_path("small"), tmp_path / "model"))


def test_the_payload_works(tmp_path):
    # Else the tests below would show nothing.
    pickle.loads(pickle.dumps(Payload(str(tmp_path / "ran"))))
    assert (tmp_path / "ran").exists()


def load(folder):
    return load_policy("evil", PolicySpec(model=str(folder)), live=False)


def test_weights_that_are_a_pickle_under_another_name(model, evil):
    (model / "model.safetensors").write_bytes(evil)
    with pytest.raises(ValueError, match="model"):
        load(model)


@pytest.mark.parametrize("archive", [True, False])
def test_weights_in_a_pickle(model, evil, mark, archive):
    (model / "model.safetensors").unlink()
    if archive:
        torch.save({"weight": Payload(mark)}, model / "pytorch_model.bin")
    else:
        (model / "pytorch_model.bin").write_bytes(evil)
    with pytest.raises(ValueError, match="model"):
        load(model)


CODE = "import os\nos.mkdir({!r})\nfrom transformers import {}\nclass Evil({}): model_type = 'evil'\n"


@pytest.mark.parametrize(
    ("file", "name", "parent", "read"),
    [
        ("config.json", "AutoConfig", "PretrainedConfig", configuration),
        ("config.json", "AutoModelForCausalLM", "LlamaForCausalLM", lambda spec: load(spec.model)),
        ("tokenizer_config.json", "AutoTokenizer", "PreTrainedTokenizerFast", load_tokenizer),
    ],
)
def test_code_that_comes_with_a_model(model, mark, file, name, parent, read):
    settings = json.loads((model / file).read_text())
    reference = ["evil.Evil", "evil.Evil"] if name == "AutoTokenizer" else "evil.Evil"
    settings["auto_map"] = {name: reference}
    if name == "AutoTokenizer":
        settings["tokenizer_class"] = "Evil"
    else:
        settings["model_type"] = "evil"
    (model / file).write_text(json.dumps(settings))
    (model / "evil.py").write_text(CODE.format(mark, parent, parent))
    with pytest.raises(ValueError, match=r"custom code|evil"):
        read(PolicySpec(model=str(model)))
    with pytest.raises(RecipeError, match="allow it with --allow-code"):
        open_recipe("grpo", settings=[f"policies.small.model={model}", "policies.small.trust_remote_code=true"])


def test_such_code_would_run_if_it_were_trusted(model, tmp_path):
    # Else the test above would show nothing.
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps(settings | {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}})
    )
    (model / "evil.py").write_text(CODE.format(str(tmp_path / "ran"), "PretrainedConfig", "PretrainedConfig"))
    configuration(PolicySpec(model=str(model), trust_remote_code=True))
    assert (tmp_path / "ran").exists()


def test_code_of_a_recipe_needs_permission(tmp_path, mark, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({mark!r})\ndef reward(completions): return [0]\n")
    settings = ["rewards.correctness.kind=python", "rewards.correctness.function=evil:reward"]
    for read in (read_recipe, open_recipe):
        with pytest.raises(RecipeError, match="is code to run; allow it with --allow-code"):
            read("grpo", settings=settings)
    assert PolicySpec(model="x").trust_remote_code is False


@pytest.mark.parametrize("text", ["!!python/object/apply:os.mkdir [{!r}]", "{!r}", "cos\nmkdir\n(S{!r}\ntR."])
def test_a_recipe_of_another_language(tmp_path, mark, text):
    (tmp_path / "evil.toml").write_text(text.format(mark))
    with pytest.raises(RecipeError):
        read_recipe(str(tmp_path / "evil.toml"))


@pytest.mark.parametrize("name", ["rows.pkl", "rows.pickle", "rows.pt", "rows.npy"])
def test_data_in_a_pickle(tmp_path, evil, name):
    (tmp_path / name).write_bytes(evil)
    with pytest.raises(ValueError, match="must end in"):
        DatasetRows(path=str(tmp_path / name))()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.arrow", "rows.jsonl.gz"])
def test_data_that_is_a_pickle_under_another_name(tmp_path, evil, name):
    (tmp_path / name).write_bytes(evil)
    with pytest.raises(ValueError, match="rows"):
        DatasetRows(path=str(tmp_path / name))()


@pytest.mark.parametrize("name", ["train.pkl", "evil.py", "pandas.py", "__init__.py", "dataset_infos.json"])
def test_a_folder_of_data(tmp_path, mark, evil, monkeypatch, name):
    folder = tmp_path / "evil"
    folder.mkdir()
    code = f"import os\nos.mkdir({mark!r})\n".encode()
    (folder / name).write_bytes(code if name.endswith(".py") else evil)
    with pytest.raises(ValueError, match="evil"):
        DatasetRows(path=str(folder))()
    (folder / "train.jsonl").write_text('{"prompt": "1+1="}\n')
    with suppress(ValueError):  # some are refused; what counts is that nothing ran
        assert list(DatasetRows(path=str(folder))()["prompt"]) == ["1+1="]
    monkeypatch.chdir(folder)  # a builder of `datasets` by name looks for files here
    with pytest.raises(ValueError, match="pandas"):
        DatasetRows(path="pandas")()


def test_a_shard_of_a_buffer(tmp_path, evil):
    path = tmp_path / f"00000-{hashlib.sha256(evil).hexdigest()}.arrow"  # whole, as its name says
    path.write_bytes(evil)
    with pytest.raises(ValueError, match="00000"):
        read_shard(path, lambda table: None)


def test_a_checkpoint(tmp_path, evil):
    checkpoint = save(tmp_path, 1, {"loop": {"weight": torch.ones(2)}})
    names = [file.name for file in checkpoint.path.iterdir() if file.name != "manifest.json"]
    assert {Path(name).suffix for name in names} == {".json", ".safetensors"}
    manifest = json.loads((checkpoint.path / "manifest.json").read_text())
    for name in names:
        (checkpoint.path / name).write_bytes(evil)
        manifest["files"][name] = {"bytes": len(evil), "sha256": hashlib.sha256(evil).hexdigest()}
    (checkpoint.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises((CheckpointError, ValueError)):
        checkpoint.read()
    (checkpoint.path / "manifest.json").write_bytes(evil)
    found, faults = newest(tmp_path)
    assert found is None
    assert faults


def test_saved_weights_and_adapters_are_safetensors(tmp_path):
    pytest.importorskip("peft")
    policy = load_policy("small", PolicySpec(model="tiny:small", lora=Lora(rank=2)), live=True)
    policy.save(tmp_path / "saved")
    endings = {path.suffix for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert ".safetensors" in endings
    assert endings <= {".safetensors", ".json", ".jinja", ".md", ".txt"}
