// Which completions are shown.

const ALL = "all";

const state = {
  run: 0, step: null, group: ALL, kept: ALL, status: ALL, reward: "", low: null, high: null,
  left: "", mode: "one", right: "", asked: null, shown: 0,
};

function passes(row) {
  if (state.step !== ALL && String(row.step) !== state.step) return false;
  if (state.group !== ALL && String(row.group) !== state.group) return false;
  if (state.kept === "kept" && !row.kept) return false;
  if (state.kept === "left out" && (row.kept || row.greedy)) return false;
  if (state.kept === "greedy" && !row.greedy) return false;
  if (state.status !== ALL) {
    const [name, status] = JSON.parse(state.status);
    if (ownOf(row.statuses, name) !== status) return false;
  }
  if (state.reward !== "" && (state.low !== null || state.high !== null)) {
    const value = ownOf(row.rewards, state.reward);
    if (value === null) return false;
    if (state.low !== null && value < state.low) return false;
    if (state.high !== null && value > state.high) return false;
  }
  return true;
}

function rowsOf(run) {
  return data.runs[run].rows;
}

function distinct(values) {
  return [...new Set(values)];
}

function byNumber(one, other) {
  return one - other;
}

// The controls; `changed` is called after each change with whether the signals may be others now.
function filters(changed) {
  const steps = choice([[ALL, "all"]], ALL, (value) => set("step", value));
  const groups = choice([[ALL, "all"]], ALL, (value) => set("group", value));
  const statuses = choice([[ALL, "all"]], ALL, (value) => set("status", value));
  const rewards = choice([["", "any"]], "", (value) => set("reward", value));
  const kepts = [[ALL, "all"], ["kept", "kept"], ["left out", "left out"], ["greedy", "greedy"]];
  const low = numberField("from", (value) => set("low", value));
  const high = numberField("to", (value) => set("high", value));
  low.setAttribute("aria-label", "Reward from");
  high.setAttribute("aria-label", "Reward to");

  function set(name, value) {
    state[name] = value;
    if (name === "step") offerGroups();
    if (name === "run") offer();
    low.disabled = high.disabled = state.reward === "";
    state.shown = 0;
    changed(name === "run");
  }
  function offer() {
    const rows = rowsOf(state.run);
    const known = distinct(rows.map((row) => row.step)).sort(byNumber).map(String);
    fill(steps, [[ALL, "all"], ...known.map((own) => [own, own])], state.step ?? known.at(-1));
    state.step = steps.value;
    const judged = distinct(rows.flatMap((row) => Object.entries(row.statuses).map((pair) => JSON.stringify(pair)))).sort();
    fill(statuses, [[ALL, "all"], ...judged.map((own) => [own, JSON.parse(own).join(": ")])], state.status);
    state.status = statuses.value;
    fill(rewards, [["", "any"], ...distinct(rows.flatMap((row) => Object.keys(row.rewards))).map((own) => [own, own])], state.reward);
    state.reward = rewards.value;
    offerGroups();
  }
  function offerGroups() {
    const rows = rowsOf(state.run).filter((row) => state.step === ALL || String(row.step) === state.step);
    const known = distinct(rows.map((row) => row.group)).sort(byNumber).map(String);
    fill(groups, [[ALL, "all"], ...known.map((own) => [own, own])], state.group);
    state.group = groups.value;
  }
  function move(by) {
    const place = steps.selectedIndex + by;
    if (place < 1 || place >= steps.options.length) return;
    steps.selectedIndex = place;
    set("step", steps.value);
  }
  const stepper = (text, by, title) => {
    const button = make("button", "step", text);
    button.type = "button";
    button.title = title;
    button.setAttribute("aria-label", title);
    button.addEventListener("click", () => move(by));
    return button;
  };
  const names = data.runs.map((run, place) => [String(place), `${run.label} · seed ${run.seed}`]);
  const controls = {
    Run: data.runs.length > 1 ? [choice(names, "0", (value) => set("run", Number(value)))] : null,
    Step: [steps], Group: [groups], Kept: [choice(kepts, ALL, (value) => set("kept", value))],
    Status: [statuses], Reward: [rewards, low, high],
  };
  offer();
  const made = make("div", "controls");
  for (const [label, own] of Object.entries(controls)) {
    if (!own) continue;
    const field = labeled(label, make("span", "together", ...own));
    if (label === "Step") {
      made.append(make("span", "stepper", field, stepper("‹", -1, "Previous step"), stepper("›", 1, "Next step")));
    } else made.append(field);
    own[0].id = `filter-${label.toLowerCase()}`;
  }
  low.disabled = high.disabled = true;
  low.id = "filter-low";
  high.id = "filter-high";
  return made;
}
