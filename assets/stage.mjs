// One player for every scene: it draws shapes, shows frames, and knows nothing of what they mean.
// The first half is pure (tested with node --test); the second half touches the page.

// State at a frame: every change from the first frame up to it, shape by shape.
export function stateAt(scene, position) {
  const now = new Map();
  for (const frame of scene.frames.slice(0, position + 1)) apply(now, frame.set);
  return now;
}

export function apply(now, set) {
  for (const [id, change] of Object.entries(set)) now.set(id, { ...now.get(id), ...change });
  return now;
}

export function clamp(scene, position) {
  const last = scene.frames.length - 1;
  return Math.max(0, Math.min(last, Number.isFinite(position) ? Math.round(position) : 0));
}

// The next place worth resting at, in direction +1 or -1; the ends count as such.
export function nextStop(scene, position, direction) {
  let i = position + direction;
  while (i > 0 && i < scene.frames.length - 1 && !scene.frames[i].stop) i += direction;
  return clamp(scene, i);
}

// What a key asks for. Clickers send PageUp and PageDown: they move from stop to stop.
export function keyMove(key, scene, position) {
  const moves = {
    ArrowRight: () => clamp(scene, position + 1),
    ArrowLeft: () => clamp(scene, position - 1),
    Home: () => 0,
    End: () => scene.frames.length - 1,
    PageDown: () => nextStop(scene, position, 1),
    PageUp: () => nextStop(scene, position, -1),
  };
  return key in moves ? moves[key]() : null;
}

const TWEEN = 220; // milliseconds, as in stage.css
export const SPEEDS = [0.5, 1, 2, 4];

// Milliseconds to rest on a frame: longer where there is more to read.
export function rest(frame, speed) {
  if (frame.rest) return frame.rest / speed;
  const reading = Math.min(2600, 500 + 14 * frame.say.length);
  return (frame.stop ? reading + 600 : reading) / speed;
}

export function playable(scene) {
  return Boolean(scene && Array.isArray(scene.frames) && scene.frames.length && Array.isArray(scene.shapes));
}

// ---------------------------------------------------------------------------------------------------------------
// From here on: the page.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, text = "") {
  const svg = ["svg", "g", "rect", "text", "path", "circle", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

// Drawn, not typed: not every font has the media signs.
const ICONS = {
  first: "M3 3h3v14H3zM17 3v14L7 10z",
  back: "M14 3v14L4 10z",
  play: "M5 2v16l12-8z",
  pause: "M4 3h4v14H4zM12 3h4v14h-4z",
  next: "M6 3v14l10-7z",
  last: "M3 3v14l10-7zM14 3h3v14h-3z",
};

function icon(d) {
  const svg = make("svg", { class: "icon", viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" });
  svg.append(make("path", { d }));
  return svg;
}

const DEFAULTS = { w: 0, h: 0, look: "", hue: "", label: "", note: "", mark: "", size: 13, d: "", about: "", bars: "" };

export class Stage {
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.position = 0;
    this.speed = 1;
    this.drawn = new Map();
    this.timer = null;
    this.pinned = null;
    this.build();
  }

  build() {
    this.svg = make("svg", { class: "scene", role: "img", tabindex: "-1" });
    this.view = make("div", { class: "view" });
    this.view.append(this.svg);
    this.panel = make("div", { class: "panel" });
    this.headline = make("div", { class: "headline" });
    this.say = make("p", { class: "say", role: "status", "aria-live": "polite" });
    this.facts = make("div", { class: "facts" });
    this.panel.append(this.headline, this.say, this.facts);
    this.bar = make("div", { class: "bar", role: "toolbar" });
    this.root.replaceChildren(this.view, this.panel, this.bar);
    this.root.tabIndex = 0;
    this.root.setAttribute("role", "group");
    this.buttons();
    this.listen();
  }

  buttons() {
    const button = (name, sign, act) => {
      const node = make("button", { type: "button", class: name });
      node.append(icon(sign));
      node.addEventListener("click", act);
      this.bar.append(node);
      return node;
    };
    this.first = button("first", ICONS.first, () => this.go(keyMove("PageUp", this.scene, this.position)));
    this.back = button("back", ICONS.back, () => this.go(this.position - 1));
    this.toggle = button("play", ICONS.play, () => (this.timer ? this.pause() : this.play()));
    this.next = button("next", ICONS.next, () => this.go(this.position + 1));
    this.last = button("last", ICONS.last, () => this.go(keyMove("PageDown", this.scene, this.position)));
    this.scrub = make("input", { type: "range", min: 0, step: 1, class: "scrub" });
    this.scrub.addEventListener("input", () => this.go(Number(this.scrub.value)));
    this.pace = make("select", { class: "pace" });
    for (const speed of SPEEDS) this.pace.append(make("option", { value: speed }, `${speed}×`));
    this.pace.value = 1;
    this.pace.addEventListener("change", () => (this.speed = Number(this.pace.value)));
    this.bar.append(this.scrub, this.pace);
  }

  listen() {
    this.root.addEventListener("keydown", (event) => this.key(event));
    const under = (event) => event.target.closest?.("[data-id]")?.dataset.id ?? null;
    this.svg.addEventListener("pointerover", (event) => this.explain(under(event) ?? this.pinned));
    this.svg.addEventListener("pointerleave", () => this.explain(this.pinned));
    this.svg.addEventListener("click", (event) => this.pin(under(event)));
  }

  key(event) {
    if (event.target === this.scrub && event.key.startsWith("Arrow")) return;
    if (event.target === this.pace) return;
    const move = keyMove(event.key, this.scene, this.position);
    const space = event.key === " " && event.target.tagName !== "BUTTON";
    if (move === null && !space) return;
    event.preventDefault();
    event.stopPropagation();
    if (space) this.timer ? this.pause() : this.play();
    else this.go(move);
  }

  // New data. The same scene keeps its place, its selection and its zoom; another one starts where it is told to.
  update(data) {
    this.words = data.words;
    this.hues = data.hues;
    this.root.lang = data.lang;
    this.root.classList.toggle("present", Boolean(data.present));
    this.root.classList.toggle("wide", Boolean(data.wide));
    this.name();
    for (const [key, colours] of Object.entries(this.hues))
      for (const [role, colour] of Object.entries(colours)) this.root.style.setProperty(`--${key}-${role}`, colour);
    const fresh = this.id !== data.id;
    if (fresh) this.load(data);
    const place = this.position;
    const moves = fresh && data.autoplay && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.show(moves ? 0 : place); // an untouched page shows how it moves: from the start to where it is to rest
    if (moves) this.play(place);
    if (fresh && data.present) this.root.focus({ preventScroll: true }); // a clicker's keys go where the focus is
  }

  load(data) {
    this.pause();
    this.id = data.id;
    this.scene = playable(data.scene) ? data.scene : { size: [1, 1], shapes: [], frames: [{ set: {}, say: "", caption: "" }] };
    this.shapes = new Map(this.scene.shapes.map((shape) => [shape.id, { ...DEFAULTS, ...shape }]));
    this.drawn.clear();
    [this.under, this.over, this.front] = ["under", "over", "front"].map((name) => make("g", { class: name }));
    this.svg.replaceChildren(this.under, this.over, this.front);
    this.told = this.scene.shapes.some((shape) => shape.about);
    this.svg.setAttribute("viewBox", `0 0 ${this.scene.size[0]} ${this.scene.size[1]}`);
    this.scrub.max = this.scene.frames.length - 1;
    this.pinned = this.now = null;
    this.shown = undefined;
    this.position = clamp(this.scene, data.position ?? 0);
  }

  name() {
    const w = this.words;
    this.root.setAttribute("aria-label", w.stage);
    for (const [node, word] of [[this.first, w.first], [this.back, w.back], [this.next, w.next], [this.last, w.last]]) {
      node.title = word;
      node.setAttribute("aria-label", word);
    }
    this.scrub.setAttribute("aria-label", w.scrub);
    this.pace.setAttribute("aria-label", w.speed);
    this.mark();
  }

  // While it plays, sentences come faster than they are spoken: a screen reader gets the one it rests at.
  mark() {
    this.say.setAttribute("aria-live", this.timer ? "off" : "polite");
    const word = this.timer ? this.words.pause : this.words.play;
    this.toggle.replaceChildren(icon(this.timer ? ICONS.pause : ICONS.play));
    this.toggle.title = word;
    this.toggle.setAttribute("aria-label", word);
  }

  play(until = this.scene.frames.length - 1) {
    if (this.position >= this.scene.frames.length - 1) this.show(0);
    const tick = () => {
      if (this.position >= until || document.hidden) return this.pause();
      this.show(this.position + 1);
      this.timer = setTimeout(tick, rest(this.scene.frames[this.position], this.speed));
    };
    this.timer = setTimeout(tick, 60);
    this.mark();
  }

  pause() {
    const running = this.timer !== null;
    clearTimeout(this.timer);
    this.timer = null;
    if (!running) return;
    this.mark();
    this.say.replaceChildren(this.scene.frames[this.position].say); // once more, now that it is listened to
    this.report();
  }

  leave() {
    clearTimeout(this.timer);
    clearTimeout(this.later);
  }

  go(position) {
    this.pause();
    this.show(clamp(this.scene, position));
    this.report();
  }

  // Tell the page where the picture rests, once the reader has stopped moving.
  report() {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.send("position", this.position), 350);
  }

  show(position) {
    const frame = this.scene.frames[position];
    if (this.now && position === this.position + 1) {
      apply(this.now, frame.set);
      const quick = frame.rest && frame.rest / this.speed < TWEEN; // the next frame would overtake a tween
      this.enter(Object.keys(frame.set), quick ? "" : "fresh");
    } else {
      this.now = stateAt(this.scene, position);
      this.enter(this.shapes.keys(), "");
    }
    this.position = position;
    this.scrub.value = position;
    this.scrub.setAttribute("aria-valuetext", frame.caption);
    this.headline.textContent = frame.caption;
    this.say.textContent = frame.say;
    this.svg.setAttribute("aria-label", `${frame.caption}: ${frame.say}`);
    this.explain(this.pinned);
  }

  // What comes up together fades in as one group (two: paths lie under the rest): one layer to blend, not dozens.
  enter(ids, look) {
    const batch = { under: make("g", { class: look }), over: make("g", { class: look }), front: this.front };
    for (const id of ids) this.draw(id, batch);
    if (batch.under.firstChild) this.under.prepend(batch.under);
    if (batch.over.firstChild) this.over.append(batch.over);
  }

  // Only what differs is written: a text that is set again is laid out again.
  draw(id, batch) {
    const shape = this.shapes.get(id);
    if (!shape) return;
    const now = { ...shape, ...this.now.get(id) };
    const node = this.drawn.get(id);
    if (!now.on) {
      if (node && node.parentNode.children.length === 1 && !shape.front) node.parentNode.remove();
      node?.remove();
      this.drawn.delete(id);
      return;
    }
    const group = node ?? this.place(id, now, batch);
    const before = group.now ?? {};
    const look = `shape ${now.look} ${id === this.pinned ? "pinned" : ""}`;
    if (group.getAttribute("class") !== look) group.setAttribute("class", look);
    const moved = now.kind !== "path" && (before.x !== now.x || before.y !== now.y);
    if (moved) group.style.transform = `translate(${now.x}px, ${now.y}px)`;
    if (before.mark !== now.mark) group.querySelector(".mark")?.replaceChildren(now.mark);
    if (before.label !== now.label) group.querySelector(".label, .line")?.replaceChildren(now.label);
    group.now = now;
  }

  place(id, shape, batch) {
    const group = make("g", { "data-id": id });
    if (shape.hue)
      for (const role of ["fill", "tint", "text"]) group.style.setProperty(`--${role}`, `var(--${shape.hue}-${role})`);
    PARTS[shape.kind](group, shape);
    (shape.front ? batch.front : shape.kind === "path" ? batch.under : batch.over).append(group);
    this.drawn.set(id, group);
    return group;
  }

  pin(id) {
    this.pinned = this.pinned === id ? null : id;
    for (const [name, node] of this.drawn) node.classList.toggle("pinned", name === this.pinned);
    this.explain(this.pinned);
    this.send("selected", this.pinned ?? "");
  }

  // Beside the picture: what the shape under the pointer is, and the pair of values behind it.
  explain(id) {
    if (this.shown === id) return;
    this.shown = id;
    const shape = id ? this.shapes.get(id) : null;
    const rows = shape?.bars ? this.scene.bars[shape.bars] : null;
    this.facts.replaceChildren();
    if (shape?.about) this.facts.append(make("p", { class: "about" }, shape.about));
    else if (this.told) this.facts.append(make("p", { class: "hint" }, this.words.hint));
    if (rows?.length) this.facts.append(this.chart(rows, shape.hue));
  }

  chart(rows, hue) {
    const table = make("table", { class: "pairs" });
    if (hue) table.style.setProperty("--fill", `var(--${hue}-fill)`);
    for (const [label, first, second] of rows) {
      const [row, cell] = [make("tr"), make("td")];
      for (const [name, value] of [["one", first], ["two", second]]) {
        const line = make("div", { class: `pair ${name}` });
        const bar = make("span", { class: "length" });
        bar.style.width = `${Math.max(0, value) * 100}%`;
        const text = value < 0 ? "–" : value.toFixed(value < 0.0995 ? 3 : 2).replace(/^0/, "");
        line.append(bar, make("span", { class: "value" }, `${name === "one" ? this.words.one : this.words.two} ${text}`));
        cell.append(line);
      }
      row.append(make("th", { scope: "row", translate: "no" }, label), cell);
      table.append(row);
    }
    return table;
  }
}

const PARTS = {
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

// Streamlit calls this again whenever data or theme change: the stage is built once and updated after that.
export function mount(component) {
  const { parentElement, setStateValue } = component;
  const data = JSON.parse(new TextDecoder().decode(component.data));
  const root = parentElement.querySelector(".stage");
  if (!root.stage) root.stage = new Stage(root, (name, value) => setStateValue(name, value));
  root.stage.send = (name, value) => setStateValue(name, value);
  root.stage.update(data);
  return () => root.isConnected || root.stage.leave(); // also called for an update that another one overtook
}
