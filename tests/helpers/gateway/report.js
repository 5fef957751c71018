// What of a report could not be read at this width, as sentences.
() => {
  const faults = [];
  const scrolls = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true;
    }
    return false;
  };
  const shown = document.documentElement;
  if (shown.scrollWidth > shown.clientWidth) faults.push(`scrolls sideways: ${shown.scrollWidth}`);
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width && box.right > shown.clientWidth + 1 && !scrolls(element)) {
      faults.push(`beyond the edge: ${element.outerHTML.slice(0, 90)}`);
    }
  }
  // A word over two lines has two boxes. Where any text may break, short words must not.
  for (const cell of document.querySelectorAll("th, td")) {
    const longest = cell.matches(".long") ? 12 : Infinity;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      for (const found of text.data.matchAll(/[^\s\-\u2010]+/g)) {
        const range = document.createRange();
        range.setStart(text, found.index);
        range.setEnd(text, found.index + found[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (found[0].length <= longest && lines.size > 1) faults.push(`broken: ${found[0]} in ${cell.outerHTML.slice(0, 90)}`);
      }
    }
  }
  return faults;
}
