"""A set of prompts, and the endless stream of them."""

import pytest

from grpo_kit import PromptSet, PromptStream


def stream(seed=0, size=5):
    prompts = PromptSet(ids=tuple((row,) for row in range(size)), columns={"row": tuple(range(size))}, skipped=())
    return PromptStream(prompts, seed=seed)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7, 12])
def test_each_epoch_visits_every_prompt_once(batch):
    numbers, prompts = [], stream()
    while len(numbers) < 15:
        numbers += prompts.take(batch).columns["row"]
    for epoch in range(3):
        assert sorted(numbers[5 * epoch : 5 * epoch + 5]) == [0, 1, 2, 3, 4]


def test_the_order_depends_on_the_seed_alone():
    def order(seed, batch):
        prompts = stream(seed, size=20)
        return [row for _ in range(40 // batch) for row in prompts.take(batch).columns["row"]]

    assert order(0, 4) == order(0, 10) == order(0, 40)
    assert order(0, 4) != order(1, 4)
    assert order(0, 40)[:20] != order(0, 40)[20:]


def test_groups_never_repeat_and_columns_stay_with_their_prompt():
    prompts, groups = stream(), []
    for _ in range(6):
        batch = prompts.take(4)
        assert [ids[0] for ids in batch.ids] == list(batch.columns["row"])
        groups += batch.groups
    assert groups == list(range(24))
    assert prompts.epoch == pytest.approx(24 / 5)


def test_prompts_that_repeat_are_counted():
    one = PromptSet(ids=((1,), (2,), (1,), (1,)), columns={}, skipped=())
    other = PromptSet(ids=((2,), (3,), (2,)), columns={}, skipped=())
    assert (one.repeats, other.repeats) == (2, 1)
    assert (one.shared_with(other), other.shared_with(one)) == (1, 2)
