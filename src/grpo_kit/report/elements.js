// Making elements. Texts become text nodes: nothing that a run wrote is ever read as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

function make(tag, className, ...inside) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inside.filter((part) => part !== null && part !== undefined));
  return made;
}

function section(id, title, ...inside) {
  const made = make("section", "", make("h2", "", title), ...inside);
  made.id = id;
  const link = make("a", "", title);
  link.href = `#${id}`;
  document.getElementById("nav").append(link);
  main.append(made);
  return made;
}

function labeled(label, ...controls) {
  return make("label", "field", make("span", "label", label), ...controls);
}

// A select whose options are pairs of value and text; `changed` is called with the value.
function choice(options, value, changed) {
  const made = make("select");
  fill(made, options, value);
  made.addEventListener("change", () => changed(made.value));
  return made;
}

function fill(select, options, value) {
  select.replaceChildren(
    ...options.map(([own, text]) => {
      const option = make("option", "", text);
      option.value = own;
      return option;
    }),
  );
  select.value = options.some(([own]) => own === value) ? value : options[0][0];
}

function numberField(placeholder, changed) {
  const made = make("input", "number");
  made.type = "number";
  made.step = "any";
  made.placeholder = placeholder;
  made.addEventListener("input", () => changed(made.value === "" ? null : Number(made.value)));
  return made;
}

// What an object itself has under a name, whatever the name: "constructor", too.
function ownOf(object, name) {
  return Object.hasOwn(object, name) ? object[name] : null;
}

// A number as the file has it, or one that was computed from those: no more than their five decimals.
function exact(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toFixed(5))).replace("-", "−");
}

function short(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toPrecision(3))).replace("-", "−");
}
