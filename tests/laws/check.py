"""Running a law: on random data it must hold for a part, or break for a broken one."""

from hypothesis import Phase, given, settings, strategies as st


def holds(law, part, share: float = 1.0) -> None:
    """Run a law on as many random examples as the profile has, or a share of them; AssertionError if it is broken."""

    @settings(max_examples=max(1, round(share * settings.default.max_examples)))
    @given(st.data())
    def run(data):
        law(part, data.draw)

    run()


def breaks(law, part, examples: int = 200) -> bool:
    """Whether a law finds a part broken: an AssertionError, no other error, on some random data."""

    @settings(max_examples=examples, phases=[Phase.generate], report_multiple_bugs=False)
    @given(st.data())
    def run(data):
        law(part, data.draw)

    try:
        run()
    except AssertionError:
        return True
    return False
