"""Divergences over whole distributions: what their settings refuse, small masses, and tokens without probability."""

import math

import pytest
import torch
from pydantic import ValidationError

from grpo_kit import JSD, ForwardKL, ReverseKL, SampledKL, TopK, TopKCrossEntropy
from grpo_kit.detail import Detail
from grpo_kit.divergences import DIVERGENCES
from grpo_kit.divergences.distance import detail_of
from grpo_kit.signals import TopTokens
from laws.distributions import loss_and_slope, loss_of
from tolerances import EXACT

KLS = [ForwardKL(), ReverseKL(), JSD(beta=0.3), JSD(beta=0.0), JSD(beta=1.0)]
TAILS = [type(part)(top_k=TopK(k=3), **({"beta": part.beta} if part.kind == "jsd" else {})) for part in KLS]


@pytest.mark.parametrize(
    ("part", "settings", "said"),
    [
        (ForwardKL, {"temperature": 2.0, "top_k": TopK(k=3)}, "temperature 2 softens whole distributions.*Leave one"),
        (ReverseKL, {"temperature": 0.5, "top_k": TopK(k=3)}, "temperature 0.5 softens whole distributions"),
        (JSD, {"temperature": 2.0, "top_k": TopK(k=3)}, "temperature 2 softens whole distributions"),
        (ReverseKL, {"temperature": math.inf}, "temperature"),
        (TopK, {"k": 0}, "k\n.*greater than or equal to 1"),
        (TopK, {"k": 3, "outside": "dropped"}, "'tail' or 'renormalized'"),
        (TopKCrossEntropy, {}, "k\n.*Missing|required"),
        (TopKCrossEntropy, {"k": 3, "temperature": 2.0}, "temperature"),
    ],
)
def test_what_cannot_be_is_refused(part, settings, said):
    with pytest.raises(ValidationError, match=said):
        part(**settings)


def test_a_recipe_gives_the_top_k_as_a_table():
    part = DIVERGENCES.read({"kind": "jsd", "beta": 0.1, "top_k": {"k": 64, "outside": "renormalized"}})
    assert part == JSD(beta=0.1, top_k=TopK(k=64, outside="renormalized"))
    assert DIVERGENCES.read({"kind": "forward_kl", "top_k": {"k": 64}}).top_k.outside == "tail"


def test_how_much_of_the_other_policy_each_reads():
    assert detail_of(SampledKL()) == Detail()
    assert detail_of(JSD()) == Detail(full=True)
    assert detail_of(ReverseKL(top_k=TopK(k=64))) == Detail(top_k=64)
    assert detail_of(TopKCrossEntropy(k=20)) == Detail(top_k=20)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("part", [*TAILS, TopKCrossEntropy(k=3)], ids=repr)
def test_fewer_possible_tokens_than_the_top_k(part):
    """Where the teacher has two tokens and the top k is three, the third and the tail are without probability."""
    gone = torch.tensor([[[False, True, False, True, True, True]]])
    student, teacher = torch.randn(2, 1, 1, 6, generator=torch.Generator().manual_seed(3)).double()
    both = (each.masked_fill(gone, -torch.inf) for each in (student, teacher))
    loss, slope = loss_and_slope(part, *both)
    possible = [0, 2]
    small, of_small = loss_and_slope(part, student[..., possible], teacher[..., possible])
    torch.testing.assert_close(loss, small, **EXACT)
    torch.testing.assert_close(slope[..., possible], of_small, **EXACT)
    assert (slope[gone] == 0).all()


@pytest.mark.parametrize("part", TAILS, ids=repr)
def test_a_tail_below_the_rounding_of_float32(part):
    """Peaked distributions: the sum of the top k is 1 in float32, or a rounding above."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        student, teacher = (torch.randn(1, 1, 5000, generator=generator) for _ in range(2))
        for each in (student, teacher):
            each[..., :3] += 40.0
        loss, slope = loss_and_slope(part, student, teacher)
        exact, of_exact = loss_and_slope(part, student.double(), teacher.double())
        torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(slope.double(), of_exact, rtol=1e-5, atol=1e-5)


def test_a_student_that_left_the_tail_is_called_back():
    """The teacher has a tenth outside its top k, the student 1e-12: the gradient is the tenth, not a rounding."""
    teacher = torch.tensor([[[0.5, 0.3, 0.1, 0.04, 0.06]]]).log()
    student = torch.tensor([[[0.5, 0.3, 0.2, 4e-13, 6e-13]]]).log()
    _, slope = loss_and_slope(ForwardKL(top_k=TopK(k=3)), student, teacher)
    torch.testing.assert_close(slope[0, 0, 3:], torch.tensor([-0.04, -0.06]), rtol=1e-4, atol=0)


def test_half_precision_is_widened():
    student, teacher = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(0)).bfloat16().log_softmax(-1)
    for part in (*KLS, ForwardKL(temperature=2.0), TopKCrossEntropy(k=3)):
        assert part(student, teacher).dtype == torch.float32
    top = TopTokens(ids=torch.tensor([[[1, 0]]], dtype=torch.int32), logprobs=teacher[..., :2])
    for outside in ("tail", "renormalized"):
        assert all(events.dtype == torch.float32 for events in TopK(k=2, outside=outside).events(student, top))


def test_a_top_k_of_everything_has_no_tail():
    """In float32, too, where the rounding of a sum would pass for a tail."""
    student, teacher = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    top = TopTokens(ids=torch.arange(5).expand(1, 1, 5), logprobs=teacher)
    mine, theirs = TopK(k=9).events(student, top)
    assert torch.equal(mine, student)
    assert torch.equal(theirs, teacher)


def test_a_longer_list_of_top_tokens_is_cut():
    """One policy is scored once, with as many top tokens as the most that any part asks for."""
    student, teacher = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    found = []
    for k in (2, 5):
        top = teacher.topk(k)
        tokens = TopTokens(ids=top.indices, logprobs=top.values)
        found.append([TopK(k=2).events(student, tokens), TopKCrossEntropy(k=2).top_k.events(student, tokens)])
    torch.testing.assert_close(found[0], found[1])
    assert found[0][0][0].shape[-1] == 3
    assert found[0][1][0].shape[-1] == 2


@pytest.mark.usefixtures("float64")
def test_the_cross_entropy_pulls_on_a_student_that_agrees():
    """Its gradient there is p times the teacher's mass outside, less that outside itself."""
    logits = torch.tensor([[[2.0, 1.0, 0.5, 0.0, -1.0]]])
    q = logits.softmax(-1)[0, 0].tolist()
    loss, slope = loss_and_slope(TopKCrossEntropy(k=2), logits, logits)
    inside = q[0] + q[1]
    assert float(loss) == pytest.approx(-sum(p * math.log(p) for p in q[:2]))
    expected = [-p + p * inside if v < 2 else p * inside for v, p in enumerate(q)]
    torch.testing.assert_close(slope[0, 0], torch.tensor(expected), **EXACT)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("beta", [0.1, 0.5, 0.8])
def test_a_jsd_is_bounded_by_the_entropy_of_its_mixture(beta):
    bound = -beta * math.log(beta) - (1 - beta) * math.log(1 - beta)
    apart = torch.tensor([[[0.0, -torch.inf]]]), torch.tensor([[[-torch.inf, 0.0]]])
    assert float(loss_of(JSD(beta=beta), *apart)) == pytest.approx(bound)


@pytest.mark.parametrize(("part", "sides"), [(ForwardKL(), (0, 1)), (ReverseKL(), (1, 0))], ids=["forward", "reverse"])
def test_what_one_side_calls_impossible_is_infinitely_far(part, sides):
    both = torch.tensor([[[0.5, 0.5]]]).log(), torch.tensor([[[1.0, 0.0]]]).log()
    assert float(part(both[sides[1]], both[sides[0]])) == math.inf
    assert float(part(both[sides[0]], both[sides[1]])) == pytest.approx(math.log(2))
