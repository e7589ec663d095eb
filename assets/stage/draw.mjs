// What the stage is drawn with: elements, icons, the kinds of shapes, and the small chart of pairs.

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, text = "") {
  const svg = ["svg", "g", "rect", "text", "path", "circle", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

// Drawn, not typed: not every font has the media signs.
export const ICONS = {
  first: "M3 3h3v14H3zM17 3v14L7 10z",
  back: "M14 3v14L4 10z",
  play: "M5 2v16l12-8z",
  pause: "M4 3h4v14H4zM12 3h4v14h-4z",
  next: "M6 3v14l10-7z",
  keep: "M8 2h4v7h4l-6 6-6-6h4zM3 16h14v2H3z",
  last: "M3 3v14l10-7zM14 3h3v14h-3z",
};

export function icon(d) {
  const svg = make("svg", { class: "icon", viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" });
  svg.append(make("path", { d }));
  return svg;
}

export function button(name, act, ...inner) {
  const node = make("button", { type: "button", class: name });
  node.append(...inner);
  node.addEventListener("click", act);
  return node;
}

export const PARTS = {
  rect(group, s) {
    group.append(make("rect", { width: s.w, height: s.h, rx: Math.min(6, s.h / 3, s.w / 5) }));
    const middle = s.h / 2 + s.size * 0.35;
    if (s.label) group.append(make("text", { class: "label", x: 7, y: middle, "font-size": s.size, translate: "no" }, s.label));
    if (s.note) group.append(make("text", { class: "note", x: s.w - 19, y: middle, "font-size": s.size * 0.82 }, s.note));
    if (s.h > 8 && s.label) group.append(make("text", { class: "mark", x: s.w - 4, y: middle, "font-size": s.size }, s.mark));
  },
  text(group, s) {
    group.append(make("text", { class: "line", "text-anchor": s.anchor ?? "start", "font-size": s.size }, s.label));
  },
  path(group, s) {
    group.append(make("path", { d: s.d }));
  },
  dot(group, s) {
    group.append(make("circle", { r: s.w / 2 }));
  },
};

// Rows of [label, first, second] as bars to compare; a negative value is one that nobody has.
export function pairs(rows, names, hue) {
  const table = make("table", { class: "pairs" });
  if (hue) table.style.setProperty("--fill", `var(--${hue}-fill)`);
  for (const [label, ...values] of rows) {
    const [row, cell] = [make("tr"), make("td")];
    values.forEach((value, i) => cell.append(pair(["one", "two"][i], names[i], value)));
    row.append(make("th", { scope: "row", translate: "no" }, label), cell);
    table.append(row);
  }
  return table;
}

function pair(place, name, value) {
  const line = make("div", { class: `pair ${place}` });
  const bar = make("span", { class: "length" });
  bar.style.width = `${Math.max(0, value) * 100}%`;
  const text = value < 0 ? "–" : value.toFixed(value < 0.0995 ? 3 : 2).replace(/^0/, "");
  line.append(bar, make("span", { class: "value" }, `${name} ${text}`));
  return line;
}
