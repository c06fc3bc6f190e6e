// ---- Begin -----------------------------------------------------------------------------------------------------------

element("title").textContent = data.title;
element("subtitle").textContent = data.subtitle;
for (const item of document.querySelectorAll(".diff")) item.hidden = !compared;
state = fromHash(location.hash);
written = location.hash;
show(false);
requestAnimationFrame(() => performance.mark("drawn"));
