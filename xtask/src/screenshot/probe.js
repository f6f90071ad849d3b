// Measures the page that it stands in, and sends what it found to the page around it. It changes nothing.
(() => {
  "use strict";

  const TEXTS = "h1, h2, h3, p, li, caption, figcaption, th, td, pre, svg text";
  const BLOCKS = "table, svg, img";
  // Longer words, such as paths, may be broken.
  const WORD_MOST = 16;
  const complaints = [];
  const refused = [];

  addEventListener("error", (event) => complaints.push(event.message || `cannot load ${event.target.outerHTML}`), true);
  addEventListener("unhandledrejection", (event) => complaints.push(String(event.reason)));
  document.addEventListener("securitypolicyviolation", (event) => refused.push(`${event.effectiveDirective} ${event.blockedURI}`));

  const rect = (box) => ({ x: box.left + scrollX, y: box.top + scrollY, width: box.width, height: box.height });

  const meet = (a, b) => {
    const x = Math.max(a.x, b.x);
    const y = Math.max(a.y, b.y);
    const right = Math.min(a.x + a.width, b.x + b.width);
    const bottom = Math.min(a.y + a.height, b.y + b.height);
    return { x, y, width: Math.max(0, right - x), height: Math.max(0, bottom - y) };
  };

  const upwards = function* (element) {
    for (let at = element; at && at !== document.documentElement; at = at.parentElement) yield at;
  };

  const can_scroll = (style) => ["auto", "scroll"].includes(style.overflowX);

  // Where the glyphs lie, which is not where the element's box lies.
  const ink = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return rect(range.getBoundingClientRect());
  };

  // A line may end behind a slash or a hyphen, but not in a cell that is one number.
  const word_of = (text) => (/^[-+.\de]+$/.test(text) ? /.+/g : /[^\s/-]+/g);

  // Words that are cut in two by the end of a line.
  const broken = (element) => {
    const words = [];
    const range = document.createRange();
    const nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      for (const { 0: word, index } of nodes.currentNode.data.matchAll(word_of(nodes.currentNode.data))) {
        range.setStart(nodes.currentNode, index);
        range.setEnd(nodes.currentNode, index + word.length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (word.length <= WORD_MOST && lines.size > 1) words.push(word);
      }
    }
    return words;
  };

  // What of `box` remains after every element around it has cut it, and whether one that cannot be scrolled cut it.
  const cuts = (element, box) => {
    let shown = box;
    let cut = false;
    let scrolls = false;
    for (const at of upwards(element)) {
      const style = getComputedStyle(at);
      if (at === document.body || style.overflowX === "visible") continue;
      const left = meet(shown, rect(at.getBoundingClientRect()));
      const lost = left.width < shown.width - 1 || left.height < shown.height - 1;
      cut ||= lost && !can_scroll(style);
      scrolls ||= can_scroll(style);
      shown = left;
    }
    return { shown, cut, scrolls };
  };

  const clear = (colour) => colour === "transparent" || /, 0\)$/.test(colour);

  const backdrop = (element) => {
    for (const at of upwards(element)) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!clear(colour)) return colour;
    }
    const root = getComputedStyle(document.documentElement).backgroundColor;
    return clear(root) ? "rgb(255, 255, 255)" : root;
  };

  const text = (element) => {
    const style = getComputedStyle(element);
    const in_svg = Boolean(element.ownerSVGElement);
    const own = ink(element);
    return {
      tag: element.localName,
      class: element.getAttribute("class") ?? "",
      text: element.textContent.trim().slice(0, 60),
      frame: rect((in_svg ? element.ownerSVGElement : element).getBoundingClientRect()),
      ink: own,
      ...cuts(element, own),
      scrolls_itself: can_scroll(style),
      colour: in_svg ? style.fill : style.color,
      backdrop: backdrop(element),
      tinted: element.style.background !== "",
      font_px: parseFloat(style.fontSize),
      border_px: parseFloat(style.borderTopWidth),
      in_svg,
      broken: in_svg ? [] : broken(element),
    };
  };

  const block = (element) => {
    const box = rect(element.getBoundingClientRect());
    return {
      tag: element.localName,
      frame: box,
      ...cuts(element.parentElement, box),
      cells: [...(element.rows ?? [])].map((row) => row.cells.length),
    };
  };

  const measure = () => ({
    title: document.title,
    charset: document.characterSet,
    standards: document.compatMode === "CSS1Compat",
    width_px: innerWidth,
    content_width_px: document.documentElement.scrollWidth,
    content_height_px: document.documentElement.scrollHeight,
    texts: [...document.querySelectorAll(TEXTS)].filter((element) => element.textContent.trim() !== "").map(text),
    blocks: [...document.querySelectorAll(BLOCKS)].map(block),
    complaints,
    refused,
    fetched: performance.getEntriesByType("resource").map((entry) => entry.name),
  });

  // The page around reads this out of a text, where these characters would be written as entities.
  const plain = (value) =>
    JSON.stringify(value).replace(/[<>&\u007f-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);

  addEventListener("load", () => setTimeout(() => parent.postMessage(plain(measure()), "*"), 100));
})();
