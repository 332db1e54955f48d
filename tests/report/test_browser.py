"""The report in a real browser: nothing is loaded, hostile rows run nothing, and what is clicked is what is shown."""

import json
import re
import shutil
from contextlib import contextmanager
from importlib import resources
from types import SimpleNamespace

import pytest
from rich.console import Console

from grpo_kit import read_recipe
from grpo_kit.report.command import report_command
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs
from report.made import HOSTILE, lines_of, run_folder, sample

pytestmark = pytest.mark.slow
SHORT = ["data.rows=64", "steps=2", "prompts_per_step=3", "sampler.samples=4", "selection.rule.keep=3", "log_samples=8"]
SHORT += ["evaluation.questions=4", "evaluation.samples=2"]
LONG = 4000
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page of a run of two policies with hostile rows at its end, beside a copy of it under another seed."""
    folder = tmp_path_factory.mktemp("report")
    recipe = read_recipe("codistill", settings=SHORT)
    session = start(recipe, load_inputs(recipe), "", out=folder / "run", console=Console(quiet=True))
    assert session.run() == 0
    shutil.copytree(folder / "run", folder / "copy")
    file = folder / "copy" / "recipe.resolved.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 1", 1))
    bidi = "\u202eabc\u2066\x00\x1b[31m"
    rows = [
        sample(3, 900, (HOSTILE, bidi, "\ud800"), prompt=HOSTILE, columns={"answer": HOSTILE}),
        sample(3, 901, (HOSTILE,) * 3, statuses={"<b>x</b>": HOSTILE}, rewards={"constructor": 1.0}),
        sample(3, 902, ("word ",) * LONG, rewards={"__proto__": 1.0}, advantage={"constructor": [0.5] * LONG}),
        sample(3, 903, ()),
    ]
    with (folder / "run" / "samples.jsonl").open("a") as lines:
        lines.write(lines_of(rows))
    report_command([folder / "run", folder / "copy"], folder / "report.html", Console(quiet=True))
    written = [json.loads(line) for line in (folder / "run" / "samples.jsonl").read_text().splitlines()]
    return SimpleNamespace(url=(folder / "report.html").as_uri(), rows=written)


@contextmanager
def opening(browser, url, picture):
    """A page, opened; at the end nothing was said, asked for or run that should not be."""
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    said, asked = [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(url)
    opened.wait_for_selector("body[data-ready]")
    yield opened
    opened.screenshot(path=picture)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [url]
    assert opened.evaluate("window.__pwned") is None
    opened.close()


@pytest.fixture
def page(browser, made, tmp_path):
    """The page of the two runs."""
    with opening(browser, made.url, tmp_path / "page.png") as opened:
        yield opened


def shown(page):
    """How many completions pass the filters, as the page says and as it draws them."""
    count, cards = int(page.locator(".count").get_attribute("data-rows")), page.locator(".card").count()
    assert cards == min(count, 12)
    return count


def choose(page, name, value):
    page.select_option(f"#{name}", value)


def draw_all(page):
    for place in page.locator(".plot").all():
        place.scroll_into_view_if_needed()
    page.wait_for_function("[...document.querySelectorAll('.plot')].every((own) => own.querySelector('.main-svg'))")


def test_curves_are_drawn_when_they_come_into_sight(page):
    draw_all(page)
    assert page.locator(".plot").count() > 20
    drawn = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.panel')].map((own) => "
        "[own.querySelector('figcaption').textContent, own.querySelector('.plot').data.map((line) => line.y)]))"
    )
    assert len(drawn["Total reward"]) == 2 * 2  # two learners, the band and the line of two equal seeds
    assert drawn["Total reward"][0][:2] == drawn["Total reward"][1]


def test_a_group_called_like_a_template_and_markup_is_shown_as_it_is(browser, tmp_path):
    name = "%{meta.label}<a href='https://evil.example/'>x</a> %{fullData.name} &#123;"
    line = {"step": 1, "sampler/rows": 1.0, "time/sample": 1.0, f"time/{name}": 1.0}
    runs = [run_folder(tmp_path / own, name=own, lines=[line]) for own in ("a", "b")]
    (runs[0] / "recipe.resolved.toml").write_text(f"name = {json.dumps(name)}")
    report_command(runs, tmp_path / "report.html", Console(quiet=True))
    with opening(browser, (tmp_path / "report.html").as_uri(), tmp_path / "page.png") as page:
        draw_all(page)
        assert name in page.locator(".legendtext").all_text_contents()
        assert name in page.locator(".ytick text").all_text_contents()
        hovered = ""
        for plot in page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            for place in plot.locator(".point").all():
                place.hover(force=True)
                page.wait_for_timeout(200)
                hovered += plot.locator(".hoverlayer").text_content()
                assert page.locator(".plot svg a").count() == 0
        assert name in hovered


@pytest.mark.parametrize("name", ["W" * 63, "\u8a55" * 40, "codistill_with_a_name_of_many_small_letters" * 3, "x"])
def test_no_label_is_cut_and_the_lines_have_room(browser, tmp_path, name):
    """Narrow ranges far from 0 have the longest numbers."""
    steps = range(1, 4)
    lines = [
        {"step": step, "time/sample": 1.0}
        | {
            f"eval/small/pass@{own}": value * (1 + 1e-4 * step)
            for own, value in enumerate((-0.01234, 123456.0, 2.64e10))
        }
        for step in steps
    ]
    runs = [run_folder(tmp_path / own, name=own, lines=lines) for own in (name, "other")]
    report_command(runs, tmp_path / "report.html", Console(quiet=True))
    with opening(browser, (tmp_path / "report.html").as_uri(), tmp_path / "page.png") as page:
        draw_all(page)
        for plot in page.locator(".plot").all():
            left, right = plot.evaluate(
                "(own) => [own.getBoundingClientRect().left, own.getBoundingClientRect().right]"
            )
            places = plot.locator(".ytick text").evaluate_all(
                "(all) => all.map((own) => own.getBoundingClientRect().left)"
            )
            assert places
            assert min(places) >= left
            assert (
                plot.locator(".plotclip rect").first.evaluate("(own) => own.width.baseVal.value") > (right - left) / 3
            )


def test_filters_reduce_the_rows_as_computed_from_the_file(page, made):
    assert shown(page) == sum(row["step"] == 3 for row in made.rows)  # the last step at first
    choose(page, "filter-step", "all")
    assert shown(page) == len(made.rows) == 8 * 2 + 4
    choose(page, "filter-kept", "kept")
    assert shown(page) == sum(row["kept"] for row in made.rows)
    choose(page, "filter-kept", "left out")
    assert shown(page) == sum(not row["kept"] for row in made.rows) > 0
    choose(page, "filter-kept", "all")
    group = made.rows[0]["group"]
    choose(page, "filter-group", str(group))
    assert shown(page) == sum(row["group"] == group for row in made.rows)
    choose(page, "filter-group", "all")
    rewards = [row["rewards"]["kd"] for row in made.rows if "kd" in row["rewards"]]
    low, high = sorted(rewards)[4], sorted(rewards)[11]
    choose(page, "filter-reward", "kd")
    page.fill("#filter-low", repr(low))
    assert shown(page) == sum(value >= low for value in rewards)
    page.fill("#filter-high", repr(high))
    assert shown(page) == sum(low <= value <= high for value in rewards) < len(rewards)
    choose(page, "filter-reward", "")
    status = made.rows[0]["statuses"]["correctness"]
    choose(page, "filter-status", json.dumps(["correctness", status], separators=(",", ":")))
    assert shown(page) == sum(row["statuses"].get("correctness") == status for row in made.rows)


def test_a_token_shows_its_numbers(page, made, tmp_path):
    choose(page, "filter-step", "1")
    (number, row) = next((number, row) for number, row in enumerate(made.rows) if row["kept"])
    token = page.locator(".card").nth(number).locator(".token").nth(2)
    token.hover()
    values = {
        "advantage:small/policy": row["advantage"]["small/policy"][2],
        "correction:large/policy": row["correction"]["large/policy"][2],
        "entropy:large": row["entropy"]["large"][2],
        "logprobs:small": row["logprobs"]["small"][2],
        "logprobs:writer": row["behavior"][2],
        f"ratio:large {MINUS} small": row["logprobs"]["large"][2] - row["logprobs"]["small"][2],
        "counted:small/policy": 1,
    }
    for signal, value in values.items():
        cell = page.locator(f'#tip tr[data-signal="{signal}"] td').text_content()
        assert float(cell.replace(MINUS, "-")) == pytest.approx(value, abs=1e-9), signal
    assert page.locator("#tip .piece").text_content() == row["pieces"][2].replace("\n", "↵\n")
    assert f"token 3 of {len(row['tokens'])}, id {row['tokens'][2]}" in page.locator("#tip").text_content()
    page.screenshot(path=tmp_path / "hover.png")
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()
    token.click()
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_visible()  # a click holds it
    page.keyboard.press("ArrowRight")
    assert f"token 4 of {len(row['tokens'])}" in page.locator("#tip").text_content()
    page.keyboard.press("Home")
    assert f"token 1 of {len(row['tokens'])}" in page.locator("#tip").text_content()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def colors(page, pane=0):
    return page.evaluate(
        "(pane) => [...document.querySelectorAll('.card')].flatMap((card) => "
        "[...card.querySelectorAll('.pane')[pane].querySelectorAll('.token')].map((own) => own.style.backgroundColor))",
        pane,
    )


def test_a_signal_decides_the_colors_and_the_legend(page, made):
    choose(page, "filter-step", "1")
    assert page.locator("#signal-left").input_value() == "advantage:small/policy"
    before = colors(page)
    rows = [row for row in made.rows if row["step"] == 1]
    advantages = [value for row in rows for value in row["advantage"]["small/policy"] or [None] * len(row["tokens"])]
    for color, value in zip(before, advantages, strict=True):
        if value is None:
            assert color == ""
        else:
            red, _, blue = (int(part) for part in color[4:-1].split(", "))
            assert (red > blue) == (value > 0)
            assert (red < blue) == (value < 0)
    largest = max(abs(value) for value in advantages if value is not None)
    assert float(page.locator(".legend .ends span").last.text_content()[2:]) <= float(f"{largest:.3g}")
    choose(page, "signal-left", "logprobs:large")
    assert colors(page) != before
    page.fill("#signal-range", "1000")
    assert page.locator(".legend .ends").text_content() == f"≤ {MINUS}10000"
    choose(page, "signal-left", "counted:small/policy")
    assert [color != "" for color in colors(page)] == [value is not None for value in advantages]


def test_two_policies_side_by_side(page, made, tmp_path):
    choose(page, "filter-step", "2")
    assert page.locator(".pane").count() == shown(page)
    choose(page, "signal-mode", "same")
    choose(page, "signal-left", "entropy:small")
    choose(page, "signal-right", "entropy:large")
    assert page.locator(".pane").count() == 2 * shown(page)
    assert colors(page, 0) != colors(page, 1)
    first = page.locator(".card").first
    texts = first.locator(".text")
    assert texts.nth(0).text_content() == texts.nth(1).text_content()
    first.locator(".pane").nth(1).locator(".token").nth(1).hover()
    assert page.locator(".token.twin").count() == 2
    assert page.locator("#tip tr.chosen th").text_content() == "Entropy (nats) · large"
    page.screenshot(path=tmp_path / "two.png")


def test_two_runs_side_by_side(page, made):
    choose(page, "signal-mode", "run:1")
    assert "no completion of this prompt" in page.locator(".card").first.text_content()  # hostile rows are in one run
    choose(page, "filter-step", "2")
    assert page.locator(".pane").count() == 2 * shown(page)
    choose(page, "filter-run", "1")
    assert page.locator(".card").count() > 0


def test_hostile_rows_are_shown_and_run_nothing(page, tmp_path):
    choose(page, "filter-step", "3")
    text = page.locator("#tokens").inner_text()
    assert '</script><img src=x onerror="window.__pwned=1;alert(1)"><!--' in text
    assert r"\u202eabc\u2066\x00\x1b[31m" in text
    assert r"\ud800" in text
    assert page.locator("main img, main script, main b b").count() == 0
    assert page.locator(".card").nth(2).locator(".token").count() == 1500
    page.locator(".card").nth(2).locator("button").click()
    assert page.locator(".card").nth(2).locator(".token").count() == LONG
    assert page.locator(".card").nth(3).inner_text().endswith("(no token)")
    page.locator(".token").first.hover()
    page.wait_for_timeout(200)
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] == width[1]
    page.locator(".card").first.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "hostile.png")


def test_text_stays_readable_on_every_color(page):
    """Contrast of at least 4.5 to 1 (WCAG AA) at both ends of the scale and at no color at all."""
    ends = page.evaluate("getComputedStyle(document.querySelector('.token')).color")

    def luminance(color):
        parts = [int(part) / 255 for part in color[4:-1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    source = (resources.files("grpo_kit.report") / "signals.js").read_text()
    strongest = re.findall(r"^const (?:BELOW|ABOVE) = \[(.+)\];$", source, re.MULTILINE)
    assert len(strongest) == 2
    for background in (*(f"rgb({parts})" for parts in strongest), "rgb(255, 255, 255)"):
        light, dark = luminance(background), luminance(ends)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
