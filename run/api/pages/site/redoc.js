// Shows the API's own document with the fonts of the system: no request leaves the host.
Redoc.init("/openapi.json", {
  theme: { typography: { fontFamily: "system-ui, sans-serif", headings: { fontFamily: "system-ui, sans-serif" } } },
}, document.getElementById("redoc"));
