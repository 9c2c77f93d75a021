// Draws charts with uPlot from the tables below them, which have the same figures. Without scripts, the server's picture
// stays. `data-chart`: `line`, or `steps` for what holds until it changes; `data-until`: where the picture ends;
// `data-limit`, `data-ahead`: a limit across, and what is expected at the end; `data-least`, `data-most`: the edges.
"use strict";
{
  const seconds = (text) => Date.parse(text) / 1000;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const given = (part, name) => (name in part.dataset ? Number(part.dataset[name]) : null);

  // The figures of a table: times in seconds, and values; null where there is none.
  const read = (part) => {
    const times = [], values = [];
    for (const row of part.querySelectorAll("tbody tr")) {
      const at = row.querySelector("time"), value = row.querySelector("data");
      if (!at) continue;
      times.push(seconds(at.dateTime));
      values.push(value ? Number(value.value) : null);
    }
    return [times, values];
  };

  // The same with what is expected and the limit, as columns of one picture.
  const columns = (part) => {
    const [times, values] = read(part);
    const until = part.dataset.until ? seconds(part.dataset.until) : null;
    const found = [times, values], last = values.length - 1;
    const ahead = given(part, "ahead"), limit = given(part, "limit");
    if (until !== null && until > times[last]) {
      times.push(until);
      values.push(part.dataset.chart === "steps" ? values[last] : null);
      if (ahead !== null) found.push(times.map((_, at) => (at === last ? values[last] : at > last ? ahead : null)));
    }
    if (limit !== null) found.push(times.map(() => limit));
    return { found, ahead: found.length > 2 && ahead !== null, limit: limit !== null };
  };

  const plots = new Map(); // by the part of the page: uPlot keeps each in a list of its own until it is destroyed
  const forget = (part) => {
    plots.get(part)?.destroy();
    plots.delete(part);
  };

  const draw = (part) => {
    const picture = part.querySelector("svg.chart");
    forget(part);
    part.querySelector(".plotted")?.remove();
    const { found, ahead, limit } = columns(part);
    if (!picture || found[0].length < 2) return;
    const place = document.createElement("div");
    place.className = ahead || limit ? "plotted" : "plotted alone"; // one line needs no key but under the pointer
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", picture.getAttribute("aria-label"));
    picture.before(place);
    picture.style.display = "none";
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    // Times as everywhere else on the page: UTC, the day where it changes.
    const days = (at) => new Date(at * 1000).toISOString().slice(0, 10);
    const times = (_, splits, axis, space, step) => splits.map((at, number) => {
      const hour = new Date(at * 1000).toISOString().slice(11, step < 60 ? 19 : 16);
      if (step >= 86400) return number ? days(at).slice(5) : `${days(at).slice(5)}\n${days(at).slice(0, 4)}`;
      return number && days(splits[number - 1]) === days(at) ? hour : `${hour}\n${days(at)}`;
    });
    const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(6))));
    const short = (value) => (Math.abs(value) < 1e5 ? String(Number(value.toPrecision(6)))
      : Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(value));
    const steps = part.dataset.chart === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined;
    const series = [
      { value: "{YYYY}-{MM}-{DD} {HH}:{mm} UTC", label: "at" },
      { label: "figure", stroke: colour("--fill"), width: 2, paths: steps, value: (_, value) => digits(value) },
    ];
    const line = (label, name, dash) => ({ label, stroke: colour(name), width: 1.5, dash, points: { show: false },
      value: (_, value) => digits(value) });
    if (ahead) series.push({ ...line("expected", "--fill", [5, 4]), spanGaps: true });
    if (limit) series.push(line("limit", "--bad"));
    plots.set(part, new uPlot({
      width: Math.max(place.clientWidth, 200),
      height: 200,
      padding: [null, 20, null, null],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { y: { range: (_, least, most) => ("most" in part.dataset ? [given(part, "least"), given(part, "most")]
        : part.dataset.chart === "steps" || limit ? [0, most * 1.1 || 1]
        : least === most ? [least - 1, most + 1] : [least, most]) } },
      axes: [{ ...axis, values: times, space: 80 }, { ...axis, size: 64, values: (_, splits) => splits.map(short) }],
      cursor: { drag: { x: false, y: false } },
      series,
    }, found, place));
  };

  const all = () => {
    [...plots.keys()].filter((part) => !part.isConnected).forEach(forget);
    document.querySelectorAll("[data-chart]").forEach(draw);
  };
  let waiting = 0;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(all);
  };
  all();
  window.addEventListener("resize", soon);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.target.querySelector?.("[data-chart]")) soon(); // output has none, and comes every few seconds
  });
}
