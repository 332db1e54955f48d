"""Load a policy whose weights only its engine has."""

from transformers.generation.configuration_utils import GenerationConfig

from grpo_kit.hub import from_hub
from grpo_kit.policies.load import DTYPES, PolicySpec, configuration, is_local, load_tokenizer, model_folder
from grpo_kit.policies.policy import Policy
from grpo_kit.policies.served import try_scoring, without_weights


def load_served(name: str, spec: PolicySpec, *, longest: int = 0, top_k: int = 0) -> Policy:
    """A frozen policy that its engine scores, without weights; ValueError where the engine cannot be had.

    One row of `longest` tokens is scored at once with the `top_k` likeliest, so that an engine without room for it, or
    with a lower limit on those, is found out before anything else is done.
    """
    assert spec.model is not None
    assert spec.engine is not None
    tokenizer, config = load_tokenizer(spec), configuration(spec)
    with from_hub(local=is_local(spec.model)):
        try:
            generation = GenerationConfig.from_pretrained(model_folder(spec.model))
        except OSError:  # a model need not have one
            generation = None
    model = without_weights(config, generation, dtype=DTYPES[spec.dtype], trust_remote_code=spec.trust_remote_code)
    output = model.get_output_embeddings()
    policy = Policy(name=name, model=model, tokenizer=tokenizer, vocabulary=len(output.weight))  # pyright: ignore
    policy.scored_by = policy.engine(spec.engine)
    try:
        try_scoring(policy.scored_by, vocabulary=policy.vocabulary, length=longest, top_k=top_k)
    except ValueError:
        policy.close()
        raise
    return policy
