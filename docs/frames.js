// The live pages in frames: each gets the height that it reports, and the site's scheme, light or dark. The switch of
// the site decides, not only the system's setting.
(() => {
  const frames = () => [...document.querySelectorAll("iframe.live")];
  const scheme = () => (document.body.getAttribute("data-md-color-scheme") === "slate" ? "dark" : "light");
  const send = (frame) => frame.contentWindow?.postMessage({ byheart: "scheme", scheme: scheme() }, "*");
  addEventListener("message", ({ source, data }) => {
    const frame = frames().find((one) => one.contentWindow === source);
    if (!frame || data?.byheart !== "height" || !(data.height > 0)) return;
    frame.style.height = `${Math.min(20000, Math.ceil(data.height) + 4)}px`;
    send(frame);
  });
  new MutationObserver(() => frames().forEach(send)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  frames().forEach(send);
})();
