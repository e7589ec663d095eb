// One player for every scene: it draws shapes, shows frames, and knows nothing of what they mean.
import { ICONS, PARTS, button, icon, make, pairs } from "./stage/draw.mjs";
import { Narration } from "./stage/narration.mjs";
import { pngOf, save, svgText } from "./stage/still.mjs";
import { SPEEDS, TWEEN, apply, clamp, keyMove, lineAt, playable, rest, stateAt, turn, way, wears } from "./stage/reel.mjs";

const DEFAULTS = { w: 0, h: 0, look: "", hue: "", label: "", note: "", mark: "", size: 13, d: "", about: "", bars: "" };
const LAYERS = ["under", "over", "front", "margin"];

const EDGE = 6; // pixels left free beside what is scrolled to
const LOOKS = { ",": -1, "，": -1, ".": 1, "。": 1 }; // from shape to shape, on a Chinese keyboard too
const HOP = 90; // milliseconds a frame is seen on the way from line to line

function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

export class Stage {
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.position = 0;
    this.speed = 1;
    this.drawn = new Map();
    this.timer = null;
    this.pinned = null;
    this.lit = null;
    this.build();
  }

  build() {
    this.svg = make("svg", { class: "scene", role: "img", tabindex: "-1" });
    this.view = make("div", { class: "view" });
    this.view.append(this.svg);
    this.panel = make("div", { class: "panel" });
    this.headline = make("div", { class: "headline" });
    this.say = make("p", { class: "say", role: "status", "aria-live": "polite" });
    this.facts = make("div", { class: "facts", "aria-live": "polite" });
    this.narration = new Narration({ turn: (direction) => this.turn(direction), light: (name) => this.light(name) });
    this.panel.append(this.narration.root, this.headline, this.say, this.facts);
    this.bar = make("div", { class: "bar", role: "toolbar" });
    this.root.replaceChildren(this.view, this.panel, this.bar);
    this.root.tabIndex = 0;
    this.root.setAttribute("role", "group");
    this.buttons();
    this.listen();
  }

  buttons() {
    const move = (name, act) => button(name, act, icon(ICONS[name]));
    this.first = move("first", () => this.go(keyMove("PageUp", this.scene, this.position)));
    this.back = move("back", () => this.go(this.position - 1));
    this.toggle = move("play", () => this.playOrPause());
    this.next = move("next", () => this.go(this.position + 1));
    this.last = move("last", () => this.go(keyMove("PageDown", this.scene, this.position)));
    this.scrub = make("input", { type: "range", min: 0, step: 1, class: "scrub" });
    this.scrub.addEventListener("input", () => this.go(Number(this.scrub.value)));
    this.pace = make("select", { class: "pace" });
    for (const speed of SPEEDS) this.pace.append(make("option", { value: speed }, `${speed}×`));
    this.pace.value = 1;
    this.pace.addEventListener("change", () => (this.speed = Number(this.pace.value)));
    this.bar.append(this.first, this.back, this.toggle, this.next, this.last, this.scrub, this.pace, this.keeping());
  }

  // A menu of one line: the picture as a file.
  keeping() {
    this.keep = make("details", { class: "keep" });
    this.keepName = make("summary");
    this.keepName.append(icon(ICONS.keep));
    const kinds = make("div", { class: "kinds" });
    for (const kind of ["svg", "png"]) kinds.append(button("kind", () => this.still(kind), kind.toUpperCase()));
    this.keep.append(this.keepName, kinds);
    return this.keep;
  }

  async still(kind) {
    this.keep.open = false;
    const frame = this.scene.frames[this.position];
    this.margin.style.transform = ""; // a file is not scrolled
    const text = svgText(this.svg, getComputedStyle(this.root).backgroundColor, frame.caption, frame.say);
    this.slide();
    const blob = kind === "png" ? await pngOf(text) : new Blob([text], { type: "image/svg+xml" });
    save(`draftscope-${this.id}-${this.position}.${kind}`, blob);
  }

  listen() {
    this.root.addEventListener("keydown", (event) => this.key(event));
    const under = (event) => event.target.closest?.("[data-id]")?.dataset.id ?? null;
    this.svg.addEventListener("pointerover", (event) => this.point(under(event)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("click", (event) => this.pin(under(event)));
    this.view.addEventListener("scroll", () => this.slide(), { passive: true });
  }

  key(event) {
    if (event.target === this.scrub && event.key.startsWith("Arrow")) return;
    if (event.target === this.pace || event.target === this.keepName) return;
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own
    if (event.key in LOOKS) return this.look(LOOKS[event.key]);
    const move = keyMove(event.key, this.scene, this.position);
    const space = event.key === " " && event.target.tagName !== "BUTTON";
    if (move === null && !space) return;
    event.preventDefault();
    event.stopPropagation();
    if (space) this.playOrPause();
    else if (this.lines.length && event.key.startsWith("Page")) this.turn(event.key === "PageDown" ? 1 : -1);
    else this.go(move);
  }

  playOrPause() {
    if (this.timer) return this.arrive();
    const next = this.lines[this.line + 1]; // a lesson plays up to what it says next
    if (next?.frame === this.position) this.turn(1);
    else this.play(next?.frame);
  }

  // New data. The same scene keeps its place, its selection and its zoom; another one starts where it is told to.
  update(data) {
    this.words = data.words;
    this.hues = data.hues;
    this.linked = Boolean(data.linked);
    this.root.lang = data.lang;
    this.root.classList.toggle("present", Boolean(data.present));
    this.root.classList.toggle("wide", Boolean(data.wide));
    for (const [key, colours] of Object.entries(this.hues))
      for (const [role, colour] of Object.entries(colours)) this.root.style.setProperty(`--${key}-${role}`, colour);
    const fresh = this.id !== data.id;
    if (fresh) this.load(data);
    this.name();
    const place = this.position;
    const moves = fresh && data.autoplay && !still();
    this.show(moves ? 0 : place, fresh ? undefined : this.line); // an untouched page shows how it moves: from the start to where it is to rest
    if (moves) this.play(place || this.lines[this.line + 1]?.frame);
    const leads = Boolean(data.present && data.leads);
    if (leads && (fresh || !this.leads)) this.root.focus({ preventScroll: true }); // a clicker's keys go where the focus is
    this.leads = leads;
  }

  load(data) {
    this.pause();
    this.id = data.id;
    this.scene = playable(data.scene) ? data.scene : { size: [1, 1], shapes: [], frames: [{ set: {}, say: "", caption: "" }] };
    this.lines = this.scene.lines ?? [];
    this.line = -1;
    this.narration.load(this.lines);
    this.root.classList.toggle("told", this.lines.length > 0);
    this.shapes = new Map(this.scene.shapes.map((shape) => [shape.id, { ...DEFAULTS, ...shape }]));
    this.drawn.clear();
    [this.under, this.over, this.front, this.margin] = LAYERS.map((name) => make("g", { class: name }));
    this.svg.replaceChildren(this.under, this.over, this.front, this.margin);
    this.slide();
    this.told = this.scene.shapes.some((shape) => shape.about);
    this.svg.setAttribute("viewBox", `0 0 ${this.scene.size[0]} ${this.scene.size[1]}`);
    this.scrub.max = this.scene.frames.length - 1;
    this.pinned = this.now = this.lit = null;
    this.shown = undefined;
    this.position = clamp(this.scene, data.position ?? 0);
  }

  name() {
    const w = this.words;
    this.root.setAttribute("aria-label", this.lines.length ? w.told : w.stage);
    for (const [node, word] of [[this.first, w.first], [this.back, w.back], [this.next, w.next], [this.last, w.last]]) {
      node.title = word;
      node.setAttribute("aria-label", word);
    }
    this.keepName.title = w.keep;
    this.keepName.setAttribute("aria-label", w.keep);
    this.scrub.setAttribute("aria-label", w.scrub);
    this.pace.setAttribute("aria-label", w.speed);
    this.narration.name(w);
    this.mark();
  }

  // While it plays, sentences come faster than they are spoken: a screen reader gets the one it rests at.
  mark() {
    for (const node of [this.say, this.narration.said]) node.setAttribute("aria-live", this.timer ? "off" : "polite");
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
      this.timer = setTimeout(tick, this.rest());
    };
    const opening = this.position === 0 && this.lines[0]?.frame === 0;
    this.timer = setTimeout(tick, opening ? this.rest() : 60); // what is said at the very start is read first
    this.mark();
  }

  rest() {
    const line = this.lines[this.line];
    return rest(this.scene.frames[this.position], this.speed, line?.frame === this.position ? line : null);
  }

  pause() {
    const running = this.timer !== null;
    clearTimeout(this.timer);
    this.timer = this.goal = null;
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

  // To the next or the last line: one quick move through what lies between, then rest.
  turn(direction) {
    this.arrive(); // somebody who presses again does not want to wait for the first move
    const goal = turn(this.lines, this.line, this.position, direction);
    if (!goal) return;
    const stops = still() ? [goal.position] : way(this.position, goal.position);
    const hop = () => {
      this.show(stops.shift(), goal.line);
      if (!stops.length) return this.pause(), this.report();
      this.goal = goal;
      this.timer = setTimeout(hop, HOP);
      this.mark();
    };
    hop();
  }

  // Break off what moves; a move to another line ends where it was to end.
  arrive() {
    const goal = this.goal;
    this.pause();
    if (goal) this.show(goal.position, goal.line);
  }

  // Tell the page where the picture rests, once the reader has stopped moving.
  report() {
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.address();
      this.send("position", this.position);
    }, 350);
  }

  // The page puts the moment into the address. Had it not been there before, every rest were a step in the browser's history.
  address() {
    if (!this.linked) return;
    const line = this.lines.find((one) => one.frame === this.position && one.id);
    const url = new URL(location.href);
    url.searchParams.set("at", line ? line.id : this.position);
    if (url.search !== location.search) history.replaceState(history.state, "", url);
  }

  show(position, line = lineAt(this.lines, position)) {
    const frame = this.scene.frames[position];
    const rests = this.now && position === this.position; // shown again where it was: a reader's own scrolling stays
    if (this.now && position === this.position + 1) {
      apply(this.now, frame.set);
      const quick = frame.rest && frame.rest / this.speed < TWEEN; // the next frame would overtake a tween
      this.enter(Object.keys(frame.set), quick ? "" : "fresh");
    } else {
      this.now = stateAt(this.scene, position);
      this.enter(this.shapes.keys(), "");
    }
    this.position = position;
    this.line = line;
    this.narration.show(line);
    this.narration.wake((light) => this.wearers(light).length > 0);
    this.scrub.value = position;
    this.scrub.setAttribute("aria-valuetext", frame.caption);
    this.headline.textContent = frame.caption;
    this.say.textContent = frame.say;
    this.svg.setAttribute("aria-label", `${frame.caption}: ${frame.say}`);
    this.explain(this.pinned);
    if (!rests) this.follow(Object.keys(frame.set));
  }

  // Where the picture is wider than its place, as on a phone: what has just changed is brought into view, its beginning
  // where there is no room for all of it.
  follow(ids) {
    if (this.view.scrollWidth <= this.view.clientWidth) return;
    const boxes = ids.map((id) => this.drawn.get(id)?.getBoundingClientRect()).filter((box) => box?.width);
    if (!boxes.length) return;
    const first = Math.min(...boxes.map((box) => box.left));
    const spare = this.view.clientWidth - (Math.max(...boxes.map((box) => box.right)) - first);
    const left = this.view.scrollLeft + first - this.view.getBoundingClientRect().left - Math.max(EDGE, spare / 2);
    this.view.scrollTo({ left, behavior: still() ? "auto" : "smooth" });
  }

  // What stands in the margin stays there when the picture is scrolled sideways.
  slide() {
    const unit = this.scene.size[0] / Math.max(1, this.svg.clientWidth);
    const by = this.view.scrollLeft * unit;
    this.margin.style.transform = by ? `translate(${by}px)` : "";
    this.margin.classList.toggle("slid", by > 0);
  }

  // What comes up together fades in as one group (two: paths lie under the rest): one layer to blend, not dozens.
  enter(ids, look) {
    const [under, over] = [make("g", { class: look }), make("g", { class: look })];
    const batch = { under, over, front: this.front, margin: this.margin };
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
      if (node && node.parentNode.children.length === 1 && !shape.layer) node.parentNode.remove();
      node?.remove();
      this.drawn.delete(id);
      return;
    }
    const group = node ?? this.place(id, now, batch);
    const before = group.now ?? {};
    const look = `shape ${now.look}${id === this.pinned ? " pinned" : ""}${this.lights(now) ? " lit" : ""}`;
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
    batch[shape.layer || (shape.kind === "path" ? "under" : "over")].append(group);
    this.drawn.set(id, group);
    return group;
  }

  pin(id) {
    this.pinned = this.pinned === id ? null : id;
    for (const [name, node] of this.drawn) node.classList.toggle("pinned", name === this.pinned);
    this.explain(this.pinned);
    this.send("selected", this.pinned ?? "");
  }

  // The next or earlier shape that has something to say is pinned: what pointing does, by keyboard.
  look(direction) {
    const ids = this.scene.shapes.map((shape) => shape.id).filter((id) => this.drawn.has(id) && this.tells(id));
    if (!ids.length) return;
    const at = ids.indexOf(this.pinned);
    const next = at < 0 ? (direction > 0 ? 0 : ids.length - 1) : (at + direction + ids.length) % ids.length;
    this.pin(ids[next]);
  }

  tells(id) {
    const shape = this.drawn.get(id).now;
    return Boolean(shape.about || shape.bars);
  }

  lights(shape) {
    return Boolean(this.lit) && wears(shape.look, this.lit);
  }

  // Shapes with that word among their looks stand out, and all others step back; null lights none.
  light(name) {
    if (this.lit === name) return;
    this.lit = name;
    for (const node of this.drawn.values()) node.classList.toggle("lit", this.lights(node.now));
    this.svg.classList.toggle("lighting", name !== null && this.wearers(name).length > 0);
  }

  wearers(light) {
    return [...this.drawn.values()].filter((node) => wears(node.now.look, light));
  }

  point(id) {
    this.explain(id ?? this.pinned);
    this.narration.glow(id ? this.drawn.get(id).now.look.split(" ") : []);
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
    if (rows?.length) this.facts.append(pairs(rows, [this.words.one, this.words.two], shape.hue));
  }
}

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
