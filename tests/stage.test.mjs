// The stage's pure half: run with node --test.
import assert from "node:assert/strict";
import test from "node:test";
import { apply, clamp, keyMove, nextStop, playable, rest, stateAt } from "../assets/stage.mjs";

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
