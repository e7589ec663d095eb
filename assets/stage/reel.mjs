// The pure half of the player: what is on stage at a frame, where a key leads, what a lesson says there.
// Nothing here touches the page; tests run it with node --test.

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

export const TWEEN = 220; // milliseconds, as in stage.css
export const SPEEDS = [0.5, 1, 2, 4];

// Milliseconds to rest on a frame: longer where there is more to read, and longest where a line of a lesson begins.
export function rest(frame, speed, line = null) {
  if (line) return Math.min(7000, 1500 + 30 * line.text.length) / speed;
  if (frame.rest) return frame.rest / speed;
  const reading = Math.min(2600, 500 + 14 * frame.say.length);
  return (frame.stop ? reading + 600 : reading) / speed;
}

export function playable(scene) {
  return Boolean(scene && Array.isArray(scene.frames) && scene.frames.length && Array.isArray(scene.shapes));
}

// The line said at a frame: the first that begins there, else the last before it; -1 before the first.
export function lineAt(lines, position) {
  const here = lines.findIndex((line) => line.frame === position);
  return here >= 0 ? here : lines.findLastIndex((line) => line.frame < position);
}

// From line to line, in direction +1 or -1. Back leads to the beginning of a line first; null where nothing is left.
export function turn(lines, line, position, direction) {
  const strayed = line >= 0 && position !== lines[line].frame;
  const next = direction < 0 && strayed ? line : line + direction;
  return lines[next] ? { line: next, position: lines[next].frame } : null;
}

const HOPS = 10; // at most, so that a way takes less than a second however long it is

// The frames to pass on the way to another one: back is a cut, forward shows what happens.
export function way(from, to) {
  const count = Math.min(HOPS, to - from);
  if (count < 1) return [to];
  return Array.from({ length: count }, (_, i) => from + Math.round(((to - from) * (i + 1)) / count));
}

// "a [word](light) b" → pieces, of which some belong to all shapes with that word among their looks.
export function pieces(text) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(/\[([^\]]+)\]\(([\w.-]+)\)/g)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index) });
    found.push({ text: match[1], light: match[2] });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ text: text.slice(end) });
  return found;
}

export function wears(look, light) {
  return look.split(" ").includes(light);
}
