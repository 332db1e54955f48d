"""Divergences over whole distributions in plain Python loops, value and gradient, written from their definitions."""

import math

K = 3
"""The top k of the parts in the law table."""


def divergence(name, p, q, beta=0.5):
    """A divergence of two lists of probabilities, p the student's, and its derivative by each p."""
    if name == "jsd" and beta in (0, 1):
        name = "reverse_kl" if beta else "forward_kl"
    value, slopes = 0.0, []
    for mine, other in zip(p, q, strict=True):
        if name == "forward_kl":
            value += _times(other, other, mine)
            slopes.append(-other / mine if mine else 0.0)
        elif name == "reverse_kl":
            value += _times(mine, mine, other)
            slopes.append(math.log(mine / other) + 1 if mine and other else 0.0)
        elif name == "jsd":
            middle = beta * other + (1 - beta) * mine
            value += beta * _times(other, other, middle) + (1 - beta) * _times(mine, mine, middle)
            slopes.append((1 - beta) * math.log(mine / middle) if mine else 0.0)
        elif name == "top_k_cross_entropy":
            value += _times(other, 1.0, mine)
            slopes.append(-other / mine if mine else 0.0)
    return value, slopes


def _times(weight, over, under):
    """weight log(over / under), where 0 log 0 is 0."""
    if weight == 0:
        return 0.0
    return weight * math.log(over / under) if under else math.inf


def softmax(logits, temperature=1.0):
    """Probabilities of a list of logits."""
    largest = max(logits)
    powers = [math.exp((logit - largest) / temperature) for logit in logits]
    return [power / sum(powers) for power in powers]


def loss_and_gradient(part, student, teacher):
    """The loss of one token and its gradient by the student's logits, from two lists of logits."""
    temperature, beta = getattr(part, "temperature", 1.0), getattr(part, "beta", 0.5)
    p, q = softmax(student, temperature), softmax(teacher, temperature)
    tokens = list(range(len(p)))
    outside = "dropped" if part.kind == "top_k_cross_entropy" else getattr(part.top_k, "outside", None)
    inside = tokens if outside is None else sorted(tokens, key=lambda v: -q[v])[: part.top_k.k]
    rest = [v for v in tokens if v not in inside]
    mine, other = [p[v] for v in inside], [q[v] for v in inside]
    mass = sum(mine)
    if mass == 0:
        return math.inf, []
    if outside == "renormalized":
        mine, other = [each / mass for each in mine], [each / sum(other) for each in other]
    if outside == "tail" and rest:
        mine, other = [*mine, sum(p[v] for v in rest)], [*other, sum(q[v] for v in rest)]
    value, of_events = divergence(part.kind, mine, other, beta)
    if outside == "renormalized":  # the derivative by p of p / sum(p)
        mean = sum(each * slope for each, slope in zip(mine, of_events, strict=True))
        of_events = [(slope - mean) / mass for slope in of_events]
    slopes = [of_events[inside.index(v)] if v in inside else 0.0 for v in tokens]
    if outside == "tail":
        slopes = [of_events[-1] if v in rest else slopes[v] for v in tokens]
    # By each logit: the derivative by p of the softmax.
    mean = sum(p[v] * slopes[v] for v in tokens)
    return value, [p[v] * (slopes[v] - mean) / temperature for v in tokens]
