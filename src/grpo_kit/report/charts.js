// Curves and bars: plotly draws each picture when it comes near the window.

const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

function draw(place, figure) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  Plotly.newPlot(place, figure.data, figure.layout, CONFIG);
}

function panelOf(panel, watcher) {
  const place = make("div", "plot");
  place.style.height = `${panel.figure.layout.height}px`;
  place.figure = panel.figure;
  watcher.observe(place);
  const figure = make("figure", panel.wide ? "panel wide" : "panel", make("figcaption", "", panel.title), place);
  figure.append(make("code", "key", panel.key));
  return figure;
}

function charts() {
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => draw(target, target.figure)),
    { rootMargin: "700px" },
  );
  for (const { title, panels } of data.sections) {
    const grid = make("div", "grid", ...panels.map((panel) => panelOf(panel, watcher)));
    section(title.toLowerCase().replace(/[^a-z]+/g, "-"), title, grid);
  }
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll(".plot").forEach((place) => draw(place, place.figure));
  });
}
