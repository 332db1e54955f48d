"""Every tolerance of the tests, by name."""

EXACT = {"rtol": 1e-10, "atol": 1e-12}
"""float64, one formula against another: a few roundings of 2e-16 each, relative to numbers near 1."""

MODEL = {"rtol": 1e-7, "atol": 1e-10}
"""float64 gradients of a tiny model summed in another order."""

MODEL_SUM = {"rtol": 1e-4, "atol": 1e-6}
"""A gradient of several terms against the sum of their gradients: Llama's norms round what passes to float32."""

THEOREM = {"rtol": 0.0, "atol": 1e-10}
"""float64, a sum over an enumerated tree."""

CLEARLY_DIFFERENT = 1e-4
"""What a broken law must be off by at least, where its being broken is the statement."""

FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}
"""float32, the tiny pair."""

BFLOAT16 = {"rtol": 2e-2, "atol": 2e-2}
"""Products rounded to bfloat16 (8 bits, 4e-3), summed in another order; numbers near 1."""

PRINTED = {"rtol": 0.0, "atol": 5e-4}
"""A number written with three decimals."""

GOLDEN = {"rel": 2e-3, "abs": 2e-4}
"""A short float32 run on another processor: sums in another order, no token drawn differently."""
