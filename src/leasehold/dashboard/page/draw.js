// Draws a lane: who owned a partition over time, as coloured stretches, and its lag as a line; and the times below the
// lanes. Pure but for the elements.

const SPACE = "http://www.w3.org/2000/svg";

/** A new element of SVG with these attributes. */
export function svg(name, attributes) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

/** The times of an axis from `from` to `to`, `step` seconds apart: full by a clock that is `ahead` seconds of UTC. */
export function ticks(from, to, step, ahead) {
  const times = [];
  for (let at = Math.ceil((from + ahead) / step) * step - ahead; at <= to; at += step) times.push(at);
  return times;
}

/**
 * Fill `strip` with the samples of a partition: [at, owner, lag] in order, from `from` to `to` in seconds. A gap of more
 * than `gap` seconds between two samples stays empty: nobody looked. `colour` gives the number of an owner's colour; a
 * stretch without an owner is grey. `times` are marked by lines.
 */
export function draw(strip, samples, { from, to, highest, gap, colour, times }) {
  const x = (at) => (1000 * (at - from)) / Math.max(1, to - from);
  const y = (lag) => 96 - (90 * lag) / Math.max(1, highest);
  const parts = [];
  let stretch = null;
  let line = "";
  const close = (until) => {
    if (stretch) {
      const at = x(stretch.since);
      const width = Math.max(2, x(until) - at);
      parts.push(svg("rect", { x: at, y: 0, width, height: 100, class: stretch.owner ? `o${colour(stretch.owner)}` : "free" }));
    }
    stretch = null;
  };
  let last = null;
  for (const [at, owner, lag] of samples) {
    if (at < from - gap) continue;
    const apart = last !== null && at - last > gap;
    if (apart) close(last);
    if (!stretch || stretch.owner !== owner) {
      close(at);
      stretch = { owner, since: Math.max(from, at) };
    }
    line += `${line === "" || apart ? "M" : "L"}${x(Math.max(from, at)).toFixed(1)} ${y(lag).toFixed(1)}`;
    last = at;
  }
  if (last !== null) close(to - last > gap ? last : to);
  parts.push(svg("path", { d: times.map((at) => `M${x(at).toFixed(1)} 0V100`).join(""), class: "grid" }));
  parts.push(svg("path", { d: line, class: "lag" }));
  strip.replaceChildren(...parts);
}
