// What is wrong with the page as it is shown now, as sentences (WCAG 2.2: 1.4.3, 2.5.5, 4.1.2).
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const channel = (value) => value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const seen = (element) => element.getBoundingClientRect().width > 0 && !element.closest("script, style, noscript");
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const short = (element) => element.outerHTML.slice(0, 90);
  const faults = [];
  for (const element of all("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    // Who cannot be chosen now may be pale.
    if (!own || element.disabled) continue;
    const [one, two] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${short(element)}`);
  }
  for (const element of all("button, input, summary, svg, section, dialog")) {
    const from = element.getAttribute("aria-labelledby");
    const named = element.getAttribute("aria-label") || (from && document.getElementById(from)?.textContent)
      || element.labels?.length || (element.matches("button, summary") && element.textContent.trim());
    if (!named) faults.push(`without a name: ${short(element)}`);
  }
  for (const element of all("button, input")) {
    const box = element.getBoundingClientRect();
    if (box.height < 44 || box.width < 44) faults.push(`small, ${box.width} by ${box.height}: ${short(element)}`);
  }
  const levels = all("h1, h2, h3").map((element) => element.tagName);
  if (levels[0] !== "H1" || levels.filter((level) => level === "H1").length !== 1) faults.push(`headings: ${levels}`);
  return faults;
}
