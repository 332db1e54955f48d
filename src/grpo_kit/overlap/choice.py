"""Which two policies of a recipe are compared: who writes the rollouts, and whom its learner distills from."""

from typing import NamedTuple

from grpo_kit.parts import did_you_mean
from grpo_kit.recipe import Recipe
from grpo_kit.samplers import Sampler
from grpo_kit.samplers.data_rows import DataRows
from grpo_kit.samplers.mixed import places_of


class Choice(NamedTuple):
    """Whom to compare, on whose rollouts.

    Attributes:
        student: name of a policy.
        teacher: name of another one.
        sampler: writes the rollouts.
        writers: the policies that it writes with, as far as it says.
    """

    student: str
    teacher: str
    sampler: Sampler
    writers: tuple[str, ...]


def choose(recipe: Recipe, student: str | None = None, teacher: str | None = None) -> Choice:
    """The student, the teacher and the sampler of the rollouts; ValueError where a choice is the user's.

    The student is the policy that samples. The teacher is the only other one that its learner reads, in a term or in a
    reward; of several the only frozen one. The sampler is the recipe's own; of one that replays rollouts the one that
    wrote them, of a mixture that of the student.
    """
    for option, given in (("--student", student), ("--teacher", teacher)):
        if given is not None and given not in recipe.policies:
            known = list(recipe.policies)
            raise ValueError(
                f"{option} {given}: no such policy.{did_you_mean(given, known)} There are {', '.join(known)}."
            )
    writing = _writing(recipe.sampler)
    if not writing:
        raise ValueError("no policy writes rollouts in this recipe: all rows are those of a data set.")
    found = list(dict.fromkeys(name for own in writing for name in _policies(own)))
    if student is None and len(found) != 1:
        problem = f"several policies sample: {', '.join(found)}" if found else "the sampler does not say who writes"
        raise ValueError(f"{problem}. Give --student: {' or '.join(found or recipe.policies)}.")
    student = student or found[0]
    teacher = teacher or _teacher(recipe, student)
    if student == teacher:
        raise ValueError(f"student and teacher are both '{student}', so that their overlap is 1. Name two policies.")
    for one, other in ((student, teacher), (teacher, student)):
        if recipe.policies[one].follows == other:
            raise ValueError(f"policy '{one}' starts as a copy of '{other}', so that their overlap is 1 at the start.")
    sampler = next((own for own in writing if student in _policies(own)), writing[0])
    return Choice(student, teacher, sampler, _policies(sampler))


def _writing(sampler: Sampler) -> list[Sampler]:
    """The samplers with which policies write rows."""
    inner = getattr(sampler, "of", sampler)  # of a replay; those of a mixture are several
    return [own for own in places_of(inner if callable(inner) else sampler).values() if not isinstance(own, DataRows)]


def _policies(sampler: Sampler) -> tuple[str, ...]:
    """The policy that a sampler says it writes with, else those that it reads."""
    own = getattr(sampler, "policy", None)
    return (own,) if isinstance(own, str) else tuple(getattr(sampler, "reads", ()))


def _teacher(recipe: Recipe, student: str) -> str:
    read = _read_by_learner(recipe, student) - {student}
    frozen = {name for name in read if name not in recipe.learners and recipe.policies[name].follows is None}
    for found in (frozen, read):
        if len(found) == 1:
            return found.pop()
    others = [name for name in recipe.policies if name != student]
    if not others:
        raise ValueError(f"the recipe has one policy, '{student}', and nothing to compare it with. Add a teacher.")
    problem = "no policy but itself" if not read else f"several others: {', '.join(sorted(read))}"
    raise ValueError(
        f"the learner of '{student}' reads {problem}, so that the teacher is unknown. Give --teacher: "
        f"{' or '.join(sorted(read) or others)}."
    )


def _read_by_learner(recipe: Recipe, student: str) -> set[str]:
    """The policies that the learner of the student reads, in its terms and in the rewards that it takes."""
    if student not in recipe.learners:
        return set[str]()
    rewards = {f"rewards.{name}" for name, weight in recipe.learners[student].rewards.items() if weight}
    return {
        policy
        for place, policies in recipe.readers().items()
        if place in rewards or place.startswith(f"learners.{student}.")
        for policy in policies
    }
