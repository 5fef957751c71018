// What a finger would not hit in the page as it is shown now, as sentences (WCAG 2.2: 2.5.5).
() => {
  const faults = [];
  for (const element of document.querySelectorAll("button, input, textarea, a[role=button]")) {
    const box = element.getBoundingClientRect();
    if (box.width && (box.height < 44 || box.width < 44)) {
      faults.push(`small, ${box.width} by ${box.height}: ${element.outerHTML.slice(0, 90)}`);
    }
  }
  return faults;
}
