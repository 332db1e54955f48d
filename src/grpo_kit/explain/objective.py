"""A learner's objective as formulas, put together from what its parts say of themselves."""

from collections.abc import Iterator
from dataclasses import replace

from grpo_kit.advantages.live import is_live, live
from grpo_kit.divergences import AdaptiveCoefficient
from grpo_kit.divergences.distance import over_vocabulary
from grpo_kit.explain.options import described, kind_of
from grpo_kit.explain.page import Formula
from grpo_kit.explain.signals import scored_symbol
from grpo_kit.formula import name as in_latex, number
from grpo_kit.learner import Learner
from grpo_kit.recipe import Recipe
from grpo_kit.samplers.mixed import has_data_rows, writers
from grpo_kit.terms import DivergenceTerm, EntropyBonus, PolicyGradient, Term, Where


def objective(recipe: Recipe, name: str) -> tuple[str | Formula, ...]:
    """The loss that a learner's optimizer steps minimize, then everything in it, term by term."""
    learner = recipe.learners[name]
    found: list[str | Formula] = [_loss(learner), _weight(learner), *_reward(recipe, learner)]
    for key, term in learner.terms.items():
        found += [f"Term `{key}`, {kind_of(term)}:", *_term(recipe, name, key, term)]
    found.append("Optimizer:")
    return (*found, *_rate(recipe, learner))


def _loss(learner: Learner) -> Formula:
    own = any(_has_own_weights(term) for term in learner.terms.values())
    summands = ""
    for key, term in learner.terms.items():
        factor = "" if abs(term.weight) == 1 else rf"{number(abs(term.weight))} \cdot "
        sign = "-" if term.weight < 0 else "+"
        weight = rf"{_weight_symbol(key, term)} \cdot " if own else ""
        summands += f" {sign} {factor}{weight}{_loss_symbol(key)}"
    inside = _sum(summands)
    if len(learner.terms) > 1 or inside.startswith("-"):
        inside = f"({inside})"
    inside = inside if own else rf"w_{{it}} \cdot {inside}"
    words = "minimized; over the tokens of an optimizer step that count"
    if learner.mask_truncated:
        words += ", which those of rows cut at the length limit do not"
    return Formula(symbol="L", latex=rf"\sum_{{i,t}} {inside}", words=words)


def _weight(learner: Learner) -> Formula:
    weighting = learner.weighting
    denominator = getattr(weighting, "denominator", None)
    words = f"the denominator is {denominator}" if denominator else described(weighting)
    return Formula(symbol="w_{it}", latex=getattr(weighting, "formula", None), words=words)


def _reward(recipe: Recipe, learner: Learner) -> Iterator[Formula]:
    """The sum of components that the learner maximizes, and those components that have a formula."""
    if not learner.rewards:
        return
    total = ""
    for key, weight in learner.rewards.items():
        factor = "" if abs(weight) == 1 else rf"{number(abs(weight))} \cdot "
        total += f" {'-' if weight < 0 else '+'} {factor}{in_latex(key)}_i"
    yield Formula(symbol="r_i", latex=_sum(total), words="reward of a row; a row with a missing one is left out")
    for key in learner.rewards:
        reward = recipe.rewards[key]
        said = " ".join((type(reward).__doc__ or "").strip().split("\n")[0].split())
        latex = getattr(reward, "formula", None)
        words = described(reward) if latex or not said else f"{described(reward)}: {said.rstrip('.')}"
        words += _coefficient(getattr(reward, "adaptive", None), "KL a token")
        yield Formula(symbol=f"{in_latex(key)}_i", latex=latex, words=words)


def _coefficient(adaptive: AdaptiveCoefficient | None, measured: str) -> str:
    """What the symbol of an adaptive coefficient means; nothing where there is none."""
    if adaptive is None:
        return ""
    return (
        rf"; $\beta$ starts at {number(adaptive.start)} and moves from batch to batch so that the {measured} comes to "
        f"{number(adaptive.target)}"
    )


def _sum(summands: str) -> str:
    """Summands with a sign before each; that of the first is left out, or stands close."""
    return summands.removeprefix(" + ") if summands.startswith(" + ") else "-" + summands.removeprefix(" - ")


def _loss_symbol(term: str) -> str:
    return rf"\ell^{{{in_latex(term)}}}_{{it}}"


def _has_own_weights(term: Term) -> bool:
    """Whether a term's weights are shared out among its own rows alone."""
    where: Where | None = getattr(term, "where", None)
    return where is not None and where.denominator == "own"


def _weight_symbol(key: str, term: Term) -> str:
    return rf"w^{{{in_latex(key)}}}_{{it}}" if _has_own_weights(term) else "w_{it}"


def _of_a_token(recipe: Recipe, key: str, term: Term) -> str:
    """That a term is a loss of a token, and of which rows, where it is not of all."""
    where: Where | None = getattr(term, "where", None)
    kind = None if where is None else where.rows
    if kind is None and getattr(term, "needs_writer", False) and has_data_rows(recipe.sampler):
        kind = "sampled"
    rows = {"sampled": "sampled rows", "data": "the data's rows", None: "rows"}[kind]
    if where is not None and where.reward is not None:
        bounds = {"at least": where.at_least, "at most": where.at_most}
        said = [f"{words} {value:g}" for words, value in bounds.items() if value is not None]
        rows += f" with {where.reward} {' and '.join(said)}"
    if rows == "rows":
        return "loss of a token"
    weights = f"; ${_weight_symbol(key, term)}$ is $w_{{it}}$ with these rows alone" if _has_own_weights(term) else ""
    return f"loss of a token of {rows}, 0 for other rows{weights}"


def _term(recipe: Recipe, learner: str, key: str, term: Term) -> Iterator[str | Formula]:
    symbol, words = _loss_symbol(key), _of_a_token(recipe, key, term)
    if isinstance(term, PolicyGradient):
        yield from _policy_gradient(recipe, learner, symbol, words, term)
    elif isinstance(term, DivergenceTerm):
        if term.importance:
            words += r"; $\mu$ is the distribution the token was drawn from"
        words += _coefficient(term.adaptive, "mean loss")
        yield Formula(symbol=symbol, latex=term.formula, words=f"{words}; {described(term.divergence)}")
        if over_vocabulary(term.divergence):
            yield from _distributions(learner, term.to)
        else:
            yield _log_ratio(learner, scored_symbol(term.to), f"is '{term.to}' with its weights at sampling time")
    else:
        if isinstance(term, EntropyBonus):
            words += "; $H$ is the entropy of the next-token distribution, in nats"
        yield _of(symbol, term, words)


def _distributions(learner: str, other: str) -> Iterator[Formula]:
    """The probabilities that a divergence over the vocabulary compares."""
    given = r"(v \mid o_{i,<t})"
    words = f"probability of a token $v$ of the vocabulary by '{learner}' being updated"
    yield Formula(symbol=r"\pi_v", latex=rf"\pi_\theta{given}", words=words)
    words = f"the same by '{other}' with its weights at sampling time"
    yield Formula(symbol="q_v", latex=f"{scored_symbol(other)}{given}", words=words)


def _policy_gradient(
    recipe: Recipe, learner: str, symbol: str, words: str, term: PolicyGradient
) -> Iterator[str | Formula]:
    teachers = dict.fromkeys(own.teacher for _, own in live(term.advantage))
    loss = _of(symbol, term.surrogate, words)
    if term.correction is not None:
        latex = None if loss.latex is None else rf"c_{{it}} \cdot [{loss.latex}]"
        loss = Formula(symbol=symbol, latex=latex, words=loss.words + ("" if latex else r", times $c_{it}$"))
    yield _of_tokens(loss) if teachers else loss
    words = "advantage"
    if not is_live(term.advantage):
        rows = "the rows of a group $g$"
        if recipe.selection is not None:
            rows = "the rows that the selection kept" if term.baseline == "selected" else "all sampled rows"
            rows += " of a group $g$"
        words += f"; $r_g$ are {rows}"
    if teachers:
        words += rf", taken anew at every update; $\pi_\theta$ is '{learner}' being updated"
    for name in teachers:
        words += f"; ${scored_symbol(name)}$ is '{name}' with its weights at sampling time"
    advantage = _of("A_i", term.advantage, words)
    yield _of_tokens(advantage) if teachers else advantage
    yield _of(r"\rho_{it}", term.ratio, "what the surrogate sees")
    if not term.needs_anchor:
        latex = r"\log \pi_\theta(o_{it}) - \operatorname{sg}[\log \pi_\theta(o_{it})]"
        words = rf"always 0, with the gradient of $\log \pi_\theta$; $\pi_\theta$ is '{learner}' being updated"
        yield Formula(symbol="d_{it}", latex=latex, words=words)
    elif term.anchor == "behavior":
        yield _log_ratio(learner, r"\mu", "is the distribution the token was drawn from")
    else:
        yield _log_ratio(learner, scored_symbol(learner), f"is '{learner}' with its weights at sampling time")
    if term.correction is not None:
        weight = _of("c_{it}", term.correction, "importance weight of the tokens' origin, without gradient")
        yield _of_tokens(weight) if teachers else weight
        writer = r"\log \mu(o_{it})"
        if term.anchor == "behavior":
            yield Formula(symbol="b_{it}", latex="0", words=r"since $\mu$ itself is the anchor")
            return
        latex = rf"\log {scored_symbol(learner)}(o_{{it}}) - {writer}"
        yield Formula(symbol="b_{it}", latex=latex, words=r"$\mu$ is the distribution the token was drawn from")
    elif term.anchor != "behavior" and (others := [name for name in writers(recipe.sampler) if name != learner]):
        by = " or ".join(f"'{name}'" for name in others)
        yield f"Without a correction a token that {by} wrote counts as if '{learner}' had written it."


def _of_tokens(formula: Formula) -> Formula:
    """A formula with an advantage for each token in place of one for each row."""
    latex = None if formula.latex is None else formula.latex.replace("A_i", "A_{it}")
    return replace(formula, symbol=formula.symbol.replace("A_i", "A_{it}"), latex=latex)


def _log_ratio(learner: str, other: str, whose: str) -> Formula:
    latex = rf"\log \pi_\theta(o_{{it}}) - \log {other}(o_{{it}})"
    return Formula(symbol="d_{it}", latex=latex, words=rf"$\pi_\theta$ is '{learner}' being updated; ${other}$ {whose}")


def _of(symbol: str, part: object, words: str) -> Formula:
    """A part's own formula; a part without one is shown by its kind and its settings."""
    latex = getattr(part, "formula", None)
    said = f"{words}; {described(part)}" if words else described(part)
    return Formula(symbol=symbol, latex=latex, words=said)


def _rate(recipe: Recipe, learner: Learner) -> Iterator[Formula]:
    adamw = learner.optimizer
    total = recipe.steps * learner.epochs * learner.mini_batches
    step = r"\theta \leftarrow \operatorname{AdamW}(\theta, \nabla L, \eta_k)"
    words = f"a gradient longer than {adamw.max_grad_norm:g} is scaled down to it; weight decay {adamw.weight_decay:g}"
    yield Formula(symbol=step, words=words)
    for latex, when in adamw.formulas(total):
        yield Formula(symbol=r"\eta_k", latex=latex, words=f"{when}, the run's optimizer steps")
