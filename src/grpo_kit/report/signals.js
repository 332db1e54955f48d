// Signals of tokens, and the colors of their numbers: blue below the center, orange above it, white at it.

const BELOW = [96, 160, 214];
const ABOVE = [243, 152, 62];
const INSIDE = 0.98;
const KINDS = {
  advantage: { label: "Advantage", center: 0 },
  ratio: { label: "KD log-ratio", center: 0 },
  gap: { label: "Log-ratio", center: 0 },
  correction: { label: "Correction weight", center: 1 },
  entropy: { label: "Entropy (nats)", center: 0 },
  logprobs: { label: "Log-probability", center: 0 },
  counted: { label: "Counts in the loss", center: 0 },
};

function difference(one, other) {
  if (!one || !other) return null;
  return one.map((value, place) => (value === null || other[place] === null ? null : value - other[place]));
}

function keysOf(rows, name) {
  return [...new Set(rows.flatMap((row) => Object.keys(row[name])))];
}

// Every signal that some of the rows have: its id, kind, whose it is, and its numbers of a row.
function signalsOf(rows) {
  const found = [];
  const add = (kind, who, of) => found.push({ id: `${kind}:${who}`, kind, who, of, label: `${KINDS[kind].label} · ${who}` });
  for (const who of keysOf(rows, "advantage")) add("advantage", who, (row) => ownOf(row.advantage, who));
  const policies = keysOf(rows, "logprobs");
  const hasWriter = rows.some((row) => row.behavior);
  for (const one of policies) {
    for (const other of policies) {
      if (one !== other) add("ratio", `${one} − ${other}`, (row) => difference(ownOf(row.logprobs, one), ownOf(row.logprobs, other)));
    }
    if (hasWriter) add("gap", `${one} − writer`, (row) => difference(ownOf(row.logprobs, one), row.behavior));
  }
  for (const who of keysOf(rows, "correction")) add("correction", who, (row) => ownOf(row.correction, who));
  for (const who of keysOf(rows, "entropy")) add("entropy", who, (row) => ownOf(row.entropy, who));
  for (const who of policies) add("logprobs", who, (row) => ownOf(row.logprobs, who));
  if (hasWriter) add("logprobs", "writer", (row) => row.behavior);
  for (const who of keysOf(rows, "counted")) add("counted", who, (row) => ownOf(row.counted, who));
  return found.length ? found : [{ id: "none", kind: "counted", who: "", of: () => null, label: "No signal" }];
}

// How far from the center the strongest colors are: 98 of 100 numbers lie inside, or what the reader asked for.
function scaleOf(signal, rowsAndSignals, asked) {
  const { center } = KINDS[signal.kind];
  if (signal.kind === "counted") return { center, below: 1, above: 1 };
  const far = { below: [], above: [] };
  for (const [rows, own] of rowsAndSignals) {
    if (own.kind !== signal.kind) continue;
    for (const row of rows) {
      for (const value of own.of(row) || []) {
        if (value === null || value === center) continue;
        (value < center ? far.below : far.above).push(Math.abs(value - center));
      }
    }
  }
  const reach = (numbers) => {
    numbers.sort((one, other) => one - other);
    return numbers.length ? numbers[Math.ceil(INSIDE * numbers.length) - 1] : 0;
  };
  const below = reach(far.below);
  const above = reach(far.above);
  if (asked) return { center, below: asked, above: asked, hasBelow: below > 0, hasAbove: above > 0 };
  if (center === 1) return { center, below: 1, above: above || 1, hasBelow: true, hasAbove: true };
  const both = Math.max(below, above) || 1;
  return { center, below: both, above: both, hasBelow: below > 0, hasAbove: above > 0 };
}

function colorOf(value, scale) {
  const away = value - scale.center;
  const share = Math.min(1, Math.abs(away) / (away < 0 ? scale.below : scale.above));
  const end = away < 0 ? BELOW : ABOVE;
  return `rgb(${end.map((part) => Math.round(255 + (part - 255) * share)).join(", ")})`;
}

function legendOf(signal, scale) {
  const bar = make("span", "bar");
  const low = scale.center - scale.below;
  const high = scale.center + scale.above;
  if (signal.kind === "counted") {
    bar.className = "bar counts";
    bar.style.background = colorOf(1, scale);
    return make("div", "legend", bar, make("span", "", "counts"), make("span", "bar counts none"), make("span", "", "does not"));
  }
  const from = scale.hasBelow ? low : scale.center;
  const to = scale.hasAbove ? high : scale.center;
  bar.style.background = `linear-gradient(to right, ${[from, scale.center, to].map((own) => colorOf(own, scale)).join(", ")})`;
  const ends = [scale.hasBelow ? `≤ ${short(low)}` : "", short(scale.center), scale.hasAbove ? `≥ ${short(high)}` : ""];
  if (scale.center === 1 && low === 0) ends[0] = "0";
  if (!scale.hasBelow) bar.style.background = `linear-gradient(to right, #fff, ${colorOf(high, scale)})`;
  if (!scale.hasAbove) bar.style.background = `linear-gradient(to right, ${colorOf(low, scale)}, #fff)`;
  const numbers = make("span", "ends", ...ends.filter((text) => text !== "").map((text) => make("span", "", text)));
  return make("div", "legend", make("span", "scale", bar, numbers), make("span", "bar counts none"), make("span", "", "no number"));
}
