// The picture at rest as a file: an SVG that needs no style sheet, or a PNG of it.

const KEPT = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "rx",
  "font-family", "font-size", "font-weight", "text-anchor", "text-decoration-line",
];

// What the style sheet says of a node becomes the node's own.
function settle(node, copy) {
  const style = getComputedStyle(node);
  for (const name of [...copy.attributes].map((one) => one.name))
    if (["class", "style", "tabindex", "role", "aria-label", "data-id"].includes(name)) copy.removeAttribute(name);
  for (const name of KEPT) {
    const value = style.getPropertyValue(name);
    if (value && value !== "none" && value !== "normal") copy.style.setProperty(name, value);
  }
  if (style.fill === "none") copy.style.fill = "none";
  if (style.transform !== "none") copy.setAttribute("transform", style.transform);
  [...node.children].forEach((child, i) => settle(child, copy.children[i]));
}

// The picture as the text of an SVG file. title, about: what a screen reader says of it.
export function svgText(svg, paper, title, about) {
  const copy = svg.cloneNode(true);
  settle(svg, copy);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  for (const [name, value] of Object.entries({ xmlns: svg.namespaceURI, width, height })) copy.setAttribute(name, value);
  const make = (tag) => document.createElementNS(svg.namespaceURI, tag);
  const [name, desc, ground] = [make("title"), make("desc"), make("rect")];
  name.textContent = title;
  desc.textContent = about;
  ground.setAttribute("width", width);
  ground.setAttribute("height", height);
  ground.setAttribute("fill", paper);
  copy.prepend(name, desc, ground);
  return new XMLSerializer().serializeToString(copy);
}

const SHARP = 2; // pixels of a PNG per unit of the picture

export async function pngOf(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * SHARP, image.height * SHARP];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
