// A page of the site by itself: `#name` or `#number` opens it at a moment, `?present=1` leaves the picture alone.
const data = JSON.parse(document.getElementById("data").textContent);
const asked = decodeURIComponent(location.hash.slice(1));
const line = (data.scene.lines ?? []).find((one) => one.id && one.id === asked);
const number = /^\d+$/.test(asked) ? Number(asked) : null;
data.present = new URLSearchParams(location.search).get("present") === "1";
data.position = line ? line.frame : (number ?? data.position);
data.autoplay = !line && number === null;
document.documentElement.classList.toggle("presenting", data.present);

function note(position) {
  const here = (data.scene.lines ?? []).find((one) => one.frame === position && one.id);
  history.replaceState(null, "", `#${here ? here.id : position}`);
}

const root = document.querySelector(".stage");
root.stage = new Stage(root, (name, value) => name === "position" && note(value));
root.stage.update(data);
// The other language opens at the same moment, every other page in the same manner.
for (const link of document.querySelectorAll("a[data-stay]")) {
  const plain = link.getAttribute("href");
  link.addEventListener("click", () => (link.href = plain + location.search + (link.hreflang ? location.hash : "")));
}
