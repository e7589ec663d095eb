// The stage's pure half: run with node --test.
import assert from "node:assert/strict";
import test from "node:test";
import {
  apply, clamp, keyMove, lineAt, nextStop, pieces, playable, rest, stateAt, turn, way, wears,
} from "../assets/stage/reel.mjs";

const frame = (set, stop = false, say = "") => ({ set, stop, say, caption: "" });
const scene = {
  shapes: [],
  frames: [
    frame({ a: { on: true, x: 1 } }, true),
    frame({ b: { on: true } }),
    frame({ a: { x: 5 } }, true),
    frame({ b: { on: false } }),
    frame({ a: { look: "end" } }, true),
  ],
};

test("the state at a frame is the same whether stepped to or jumped to", () => {
  const now = new Map();
  scene.frames.forEach((f, i) => {
    apply(now, f.set);
    assert.deepEqual([...now], [...stateAt(scene, i)]);
  });
});

test("applying a change keeps what it does not name, and leaves the frame's own data alone", () => {
  const now = stateAt(scene, 4);
  assert.deepEqual(now.get("a"), { on: true, x: 5, look: "end" });
  assert.deepEqual(scene.frames[0].set.a, { on: true, x: 1 });
});

test("positions are clamped to whole frames", () => {
  assert.equal(clamp(scene, -3), 0);
  assert.equal(clamp(scene, 99), 4);
  assert.equal(clamp(scene, 1.6), 2);
  assert.equal(clamp(scene, NaN), 0);
});

test("page keys move from stop to stop, arrows frame by frame, Home and End to the ends", () => {
  assert.equal(nextStop(scene, 0, 1), 2);
  assert.equal(nextStop(scene, 4, -1), 2);
  assert.equal(nextStop(scene, 4, 1), 4);
  assert.equal(keyMove("PageDown", scene, 2), 4);
  assert.equal(keyMove("PageUp", scene, 2), 0);
  assert.equal(keyMove("ArrowRight", scene, 0), 1);
  assert.equal(keyMove("ArrowLeft", scene, 0), 0);
  assert.equal(keyMove("Home", scene, 3), 0);
  assert.equal(keyMove("End", scene, 0), 4);
  assert.equal(keyMove("x", scene, 0), null);
});

test("a frame rests longer the more there is to read, and speed divides it", () => {
  const short = frame({}, false, "a");
  const long = frame({}, false, "a".repeat(100));
  assert.ok(rest(long, 1) > rest(short, 1));
  assert.equal(rest(long, 2), rest(long, 1) / 2);
  assert.equal(rest({ ...short, rest: 100 }, 4), 25);
});

test("broken scenes are not played", () => {
  assert.ok(playable(scene));
  for (const broken of [null, {}, { frames: [], shapes: [] }, { frames: [1] }]) assert.ok(!playable(broken));
});

const lines = [0, 3, 3, 7].map((frame) => ({ frame, text: "what is said" }));

test("the line said is the first that begins at a frame, else the last before it", () => {
  assert.deepEqual([0, 2, 3, 4, 7, 9].map((place) => lineAt(lines, place)), [0, 0, 1, 2, 3, 3]);
  assert.equal(lineAt(lines.slice(1), 2), -1);
  assert.equal(lineAt([], 5), -1);
});

test("turning goes from line to line, also between two at one frame, and ends at the ends", () => {
  const seen = [];
  for (let at = { line: 0, position: 0 }; at; at = turn(lines, at.line, at.position, 1)) seen.push(at.line);
  assert.deepEqual(seen, [0, 1, 2, 3]);
  assert.deepEqual(turn(lines, 3, 7, -1), { line: 2, position: 3 });
  assert.equal(turn(lines, 0, 0, -1), null);
});

test("whoever has strayed from a line is led back to its beginning first", () => {
  assert.deepEqual(turn(lines, 2, 5, -1), { line: 2, position: 3 });
  assert.deepEqual(turn(lines, 2, 5, 1), { line: 3, position: 7 });
  assert.deepEqual(turn(lines.slice(1), -1, 0, 1), { line: 0, position: 3 });
});

test("the way to a line ends there and is short, however far it is; the way back is a cut", () => {
  assert.deepEqual(way(2, 5), [3, 4, 5]);
  assert.equal(way(0, 500).length, 10);
  assert.equal(way(0, 500).at(-1), 500);
  assert.deepEqual(way(5, 2), [2]);
  assert.deepEqual(way(5, 5), [5]);
});

test("words in brackets belong to a look, and everything else is text", () => {
  assert.deepEqual(pieces("a [good guess](accepted) and [the star](bonus)"), [
    { text: "a " },
    { text: "good guess", light: "accepted" },
    { text: " and " },
    { text: "the star", light: "bonus" },
  ]);
  assert.deepEqual(pieces("f[i](x) <b>"), [{ text: "f" }, { text: "i", light: "x" }, { text: " <b>" }]);
  assert.deepEqual(pieces("p[0] (plain)"), [{ text: "p[0] (plain)" }]);
  assert.ok(wears("node accepted", "accepted"));
  assert.ok(!wears("node accepted", "accept"));
});

test("what a lesson says is read before it goes on", () => {
  const moved = frame({}, false, "");
  assert.ok(rest(moved, 1, { text: "x".repeat(80) }) > rest(moved, 1));
  assert.ok(rest(moved, 1, { text: "x".repeat(9000) }) <= 7000);
});
