// The token view: completions with every token colored, its numbers beside the pointer or the focus.

const MOST_CARDS = 12;
const MOST_SPANS = 1500;
const SHORT_ROW = 160; // tokens; cards of such rows stand side by side
const tip = document.getElementById("tip");
let pinned = null;

function chip(text, className) {
  return make("span", `chip ${className || ""}`, text);
}

function heading(row) {
  const made = make("div", "about", make("strong", "", `step ${row.step}, group ${row.group ?? "–"}`));
  made.append(chip(row.greedy ? "greedy" : row.kept ? "kept" : "left out", row.kept ? "good" : ""));
  if (row.end) made.append(chip(row.end, row.end === "length" || row.end === "error" ? "bad" : ""));
  for (const [name, value] of Object.entries(row.rewards)) {
    const status = ownOf(row.statuses, name);
    const own = make("span", "reward", `${name} `, make("b", "", short(value)));
    if (status && status !== "ok") own.append(chip(status, "bad"));
    made.append(own);
  }
  for (const [name, value] of row.columns) made.append(make("span", "column", `${name} = ${value}`));
  return made;
}

// What is seen of a piece: a line break has a sign of its own to point at, and so has a part of a character.
function glyphs(piece) {
  return piece === "" ? "▯" : piece.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}

function tokenSpan(row, place, value, scale, signal) {
  const span = make("span", "token", glyphs(row.pieces[place]));
  span.dataset.place = place;
  span.tabIndex = place === 0 ? 0 : -1;
  if (value === null || value === undefined || (signal.kind === "counted" && !value)) span.classList.add("none");
  else span.style.backgroundColor = colorOf(value, scale);
  return span;
}

function pane(row, signal, scale, all) {
  const values = signal.of(row) || [];
  const known = values.filter((value) => value !== null);
  const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  const facts = `mean ${short(mean)} over ${known.length} of ${row.tokens.length} tokens`;
  const made = make("div", "pane", make("div", "of", make("b", "", signal.label), ` ${facts}`));
  if (row.pieces === null) {
    made.append(make("div", "text", row.text), make("p", "muted", "This line has no texts of tokens: an older version wrote it."));
    return made;
  }
  const text = make("div", "text");
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", `Tokens, ${signal.label}; arrow keys move`);
  const spans = (from, to) => row.pieces.slice(from, to).map((_, place) => tokenSpan(row, from + place, values[from + place], scale, signal));
  text.append(...spans(0, MOST_SPANS));
  if (row.pieces.length === 0) text.append(make("span", "muted", "(no token)"));
  text.context = { row, signal, all };
  made.append(text);
  if (row.pieces.length > MOST_SPANS) {
    const more = make("button", "more", `Show all ${row.pieces.length} tokens`);
    more.addEventListener("click", () => {
      text.append(...spans(MOST_SPANS));
      more.remove();
    });
    made.append(more);
  }
  return made;
}

function card(panes, row, beside) {
  const made = make("article", "card", heading(row));
  made.append(make("div", "prompt", row.prompt));
  const columns = make("div", panes.length > 1 ? "panes two" : "panes", ...panes);
  if (beside === null) columns.append(make("div", "pane muted", "The other run has no completion of this prompt at this step."));
  made.append(columns);
  return made;
}

// The completion of another run at the same step and prompt, and the same place among those of the prompt.
function partner(row, other) {
  const same = (own) => own.step === row.step && own.prompt === row.prompt && own.greedy === row.greedy;
  return rowsOf(other).filter(same)[rowsOf(state.run).filter(same).indexOf(row)] || null;
}

function showTip(span) {
  const { row, signal, all } = span.parentElement.context;
  const place = Number(span.dataset.place);
  const body = make("tbody");
  for (const own of all) {
    const values = own.of(row);
    if (!values) continue;
    const line = make("tr", own.id === signal.id ? "chosen" : "", make("th", "", own.label));
    line.append(make("td", "", exact(values[place])));
    line.dataset.signal = own.id;
    body.append(line);
  }
  const piece = row.pieces[place];
  const title = make("div", "piece", piece === "" ? "part of the next token's character" : glyphs(piece).slice(0, 120));
  tip.replaceChildren(title, make("div", "muted", `token ${place + 1} of ${row.tokens.length}, id ${row.tokens[place]}`), make("table", "", body));
  tip.hidden = false;
  const at = span.getClientRects()[0] || span.getBoundingClientRect();
  const fits = at.bottom + 10 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - tip.offsetWidth - 12))}px`;
  tip.style.top = `${fits ? at.bottom + 8 : Math.max(8, at.top - tip.offsetHeight - 8)}px`;
  document.querySelectorAll(".token.twin").forEach((own) => own.classList.remove("twin"));
  for (const text of span.closest(".panes").querySelectorAll(".text")) {
    const twin = text.context && text.context.row === row && text.children[place];
    if (twin) twin.classList.add("twin");
  }
}

function hideTip() {
  pinned = null;
  tip.hidden = true;
  document.querySelectorAll(".token.twin").forEach((own) => own.classList.remove("twin"));
}

function move(span, key) {
  const all = span.parentElement.querySelectorAll(".token");
  const place = [...all].indexOf(span);
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1 }[key];
  if (next === undefined || !all[next]) return false;
  all[next].focus();
  return true;
}

function listen(cards) {
  const token = (event) => event.target.closest && event.target.closest(".token");
  cards.addEventListener("pointerover", (event) => token(event) && !pinned && showTip(token(event)));
  cards.addEventListener("pointerout", (event) => token(event) && !pinned && hideTip());
  cards.addEventListener("focusin", (event) => token(event) && focused(token(event)));
  cards.addEventListener("focusout", (event) => token(event) && !pinned && hideTip());
  cards.addEventListener("keydown", (event) => token(event) && move(token(event), event.key) && event.preventDefault());
  document.addEventListener("click", (event) => {
    const own = token(event);
    if (own && cards.contains(own)) {
      hideTip();
      showTip(own);
      pinned = own;
    } else if (!tip.contains(event.target)) hideTip();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  document.addEventListener("scroll", () => {
    if (tip.hidden) return;
    const kept = pinned || document.querySelector(".token:focus") || document.querySelector(".token:hover");
    if (kept) showTip(kept);
    else hideTip();
  }, { passive: true });
}

// One token of a text is reached by Tab: the one that had the focus last.
function focused(span) {
  for (const own of span.parentElement.querySelectorAll('[tabindex="0"]')) own.tabIndex = -1;
  span.tabIndex = 0;
  pinned = null;
  showTip(span);
}
