// The page from top to bottom.

function summaryTable({ head, lines }) {
  const cell = ([text, below]) => make("td", "", text, below ? make("span", "below", below) : null);
  const heads = make("tr", "", ...head.map((text) => make("th", "", text)));
  const body = make("tbody", "", ...lines.map((line) => make("tr", "", ...line.map(cell))));
  return make("table", "summary", make("thead", "", heads), body);
}

function header() {
  const made = make("header", "", make("h1", "", data.title), make("p", "muted", data.made), summaryTable(data.summary));
  if (data.notes.length) made.append(make("div", "note", make("b", "", "Left out"), make("ul", "", ...data.notes.map((own) => make("li", "", own)))));
  main.append(made);
}

function tokenView() {
  const made = section("tokens", "Tokens");
  if (!data.runs.length) {
    made.append(make("p", "muted", "No run has completions in samples.jsonl."));
    return;
  }
  let signals = [];
  const left = choice([["", ""]], "", (value) => set("left", value));
  const right = choice([["", ""]], "", (value) => set("right", value));
  const modes = [["one", "one pane"], ["same", "two panes: another signal"]];
  data.runs.forEach((run, place) => data.runs.length > 1 && modes.push([`run:${place}`, `two panes: ${run.label} · seed ${run.seed}`]));
  const mode = choice(modes, "one", (value) => set("mode", value));
  const asked = numberField("auto", (value) => set("asked", value > 0 ? value : null));
  const legends = make("div", "legends");
  const count = make("p", "muted count");
  const cards = make("div", "cards");
  const more = make("button", "more", `Show ${MOST_CARDS} more`);
  left.id = "signal-left";
  right.id = "signal-right";
  mode.id = "signal-mode";
  asked.id = "signal-range";
  count.setAttribute("aria-live", "polite");
  const rightField = labeled("Right pane", right);

  function set(name, value) {
    state[name] = value;
    if (name === "mode") offer();
    show();
  }
  function other() {
    return state.mode.startsWith("run:") ? Number(state.mode.slice(4)) : state.run;
  }
  function offer() {
    signals = signalsOf(rowsOf(state.run));
    const beside = signalsOf(rowsOf(other()));
    fill(left, signals.map((own) => [own.id, own.label]), state.left);
    const next = signals.find((own) => own.kind === signals[0].kind && own.id !== left.value);
    fill(right, beside.map((own) => [own.id, own.label]), state.right || (state.mode === "same" && next ? next.id : left.value));
    [state.left, state.right] = [left.value, right.value];
    rightField.hidden = state.mode === "one";
  }
  function show() {
    hideTip();
    const rows = rowsOf(state.run).filter(passes);
    const isTwo = state.mode !== "one";
    const beside = signalsOf(rowsOf(other()));
    const one = signals.find((own) => own.id === state.left);
    const two = beside.find((own) => own.id === state.right);
    const partners = rows.map((row) => (state.mode.startsWith("run:") ? partner(row, other()) : row));
    const shown = [[rows, one], ...(isTwo ? [[partners.filter((row) => row), two]] : [])];
    const scales = shown.map(([, signal]) => scaleOf(signal, shown, state.asked));
    legends.replaceChildren(...shown.map(([, signal], place) => make("div", "of", make("b", "", signal.label), legendOf(signal, scales[place]))));
    const made = rows.slice(0, state.shown + MOST_CARDS).map((row, place) => {
      const panes = [pane(row, one, scales[0], signals)];
      if (isTwo && partners[place]) panes.push(pane(partners[place], two, scales[1], beside));
      return card(panes, row, isTwo ? partners[place] : row);
    });
    const longest = Math.max(0, ...rows.map((row) => row.tokens.length));
    cards.className = !isTwo && longest <= SHORT_ROW ? "cards side" : "cards";
    cards.replaceChildren(...made);
    const total = rowsOf(state.run).length;
    count.textContent = `${made.length} of ${rows.length} completions that pass the filters (${total} in the page)`;
    count.dataset.rows = rows.length;
    more.hidden = made.length === rows.length;
  }
  more.addEventListener("click", () => {
    state.shown += MOST_CARDS;
    show();
  });
  const controls = filters((areOther) => {
    if (areOther) offer();
    show();
  });
  offer();
  const coloring = make("div", "controls", labeled("Color by", left), labeled("Compare", mode), rightField, labeled("Range ±", asked));
  made.append(controls, make("div", "sticky", coloring, legends), count, cards, more);
  listen(cards);
  show();
}

header();
charts();
tokenView();
document.body.dataset.ready = "yes";
