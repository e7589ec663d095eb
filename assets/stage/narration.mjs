// What a lesson says beside the picture: a line at a time, words that light shapes, and questions to guess at.
import { button, make } from "./draw.mjs";
import { pieces } from "./reel.mjs";

export class Narration {
  // act.turn(±1): to another line; act.light(name or null): the shapes a word belongs to.
  constructor(act) {
    this.act = act;
    this.root = make("section", { class: "narration" });
    this.head = make("div", { class: "turns" });
    this.count = make("span", { class: "count" });
    this.back = button("turn earlier", () => act.turn(-1));
    this.next = button("turn later", () => act.turn(1));
    this.head.append(this.back, this.count, this.next);
    this.said = make("div", { class: "said", "aria-live": "polite" });
    this.quiz = make("div", { class: "quiz", role: "group" });
    this.root.append(this.head, this.said, this.quiz);
    this.listen();
  }

  // Pointing at a word or reaching it by key lights its shapes; a tap or click keeps them lit until the next.
  listen() {
    const light = (event) => event.target.closest?.("[data-light]")?.dataset.light ?? null;
    for (const name of ["pointerover", "focusin"])
      this.said.addEventListener(name, (event) => light(event) && this.act.light(light(event)));
    this.said.addEventListener("pointerout", () => this.act.light(this.kept));
    this.said.addEventListener("focusout", () => this.act.light(this.kept));
    this.said.addEventListener("click", (event) => light(event) && this.keep(light(event)));
    this.said.addEventListener("keydown", (event) => {
      if (!light(event) || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      event.stopPropagation(); // space would play
      this.keep(light(event));
    });
  }

  keep(light) {
    this.kept = this.kept === light ? null : light;
    for (const word of this.lights()) word.setAttribute("aria-pressed", String(word.dataset.light === this.kept));
    this.act.light(this.kept);
  }

  lights() {
    return [...this.said.querySelectorAll("[data-light]")];
  }

  // Another lesson: no line is shown yet, and no question answered.
  load(lines) {
    this.lines = lines;
    this.shown = null;
    this.given = new Map();
    this.root.hidden = !lines.length;
  }

  name(words) {
    this.words = words;
    this.root.setAttribute("aria-label", words.narration);
    this.back.textContent = words.earlier;
    this.next.textContent = words.later;
  }

  show(index) {
    if (!this.lines.length || this.shown === index) return;
    this.shown = index;
    const line = this.lines[index];
    const place = this.words.part.replace("{n}", index + 1).replace("{all}", this.lines.length);
    this.count.textContent = line ? place : "";
    this.back.setAttribute("aria-disabled", String(index <= 0)); // not `disabled`: that would lose the focus, and with it the keys
    this.next.setAttribute("aria-disabled", String(index >= this.lines.length - 1));
    this.said.replaceChildren(...(line ? this.tell(line) : []));
    this.quiz.replaceChildren(...(line?.question ? this.ask(line.question, index) : []));
    this.kept = null;
    this.act.light(null);
  }

  tell(line) {
    const told = [make("h2", { class: "title" }, line.title), this.paragraph("text", line.text)];
    if (line.task) {
      const task = this.paragraph("task", line.task);
      task.prepend(make("b", {}, `${this.words.task} `));
      told.push(task);
    }
    return told;
  }

  // A word whose shapes are not on stage now does not offer itself.
  wake(there) {
    for (const word of this.lights()) word.classList.toggle("idle", !there(word.dataset.light));
  }

  paragraph(name, text) {
    const node = make("p", { class: name });
    for (const piece of pieces(text))
      node.append(piece.light ? this.word(piece) : document.createTextNode(piece.text));
    return node;
  }

  // No <button>: it would be one box, which neither breaks at the end of a line nor keeps the stop behind it.
  word({ text, light }) {
    return make("span", { role: "button", tabindex: 0, class: "word", "data-light": light, "aria-pressed": "false" }, text);
  }

  // The words of a shape under the pointer, found by its looks.
  glow(looks) {
    for (const word of this.lights()) word.classList.toggle("lit", looks.includes(word.dataset.light));
  }

  ask(question, index) {
    this.quiz.setAttribute("aria-label", question.text);
    const options = question.options.map((text, i) => button("option", () => this.answer(index, i), text));
    const because = make("p", { class: "because", role: "status" });
    const reveal = button("reveal", () => this.answer(index, -1), this.words.reveal);
    const asked = [make("p", { class: "question" }, question.text), ...options, reveal, because];
    if (this.given.has(index)) this.judge(asked, question, this.given.get(index));
    return asked;
  }

  // One guess a question; -1 asks to be shown.
  answer(index, choice) {
    if (this.given.has(index)) return;
    this.given.set(index, choice);
    this.judge([...this.quiz.children], this.lines[index].question, choice);
  }

  judge(asked, question, choice) {
    const options = asked.filter((node) => node.classList.contains("option"));
    options.forEach((node, i) => {
      const fate = i === question.right ? "right" : i === choice ? "wrong" : "other";
      node.classList.add(fate);
      node.setAttribute("aria-disabled", "true");
      if (fate !== "other") node.prepend(make("span", { class: "sign" }, fate === "right" ? "✓ " : "✕ "));
    });
    const verdict = choice < 0 ? "" : this.words[choice === question.right ? "right" : "wrong"];
    asked.at(-1).replaceChildren(make("b", {}, verdict && `${verdict} `), question.because);
    asked.find((node) => node.classList.contains("reveal")).hidden = true;
  }
}
