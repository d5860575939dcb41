import { useState } from "preact/hooks";

type Theme = "auto" | "light" | "dark";
const key = "coldaisle.theme";
const next: Record<Theme, Theme> = { auto: "dark", dark: "light", light: "auto" };
const names: Record<Theme, string> = { auto: "auto", dark: "dark", light: "light" };

function chosen(): Theme {
  const stored = localStorage.getItem(key);
  return stored === "light" || stored === "dark" ? stored : "auto";
}

export function applyTheme(theme = chosen()): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("themechange"));
}

export function ThemeButton() {
  const [theme, setTheme] = useState(chosen);
  return (
    <button
      type="button" class="quiet" aria-label={`Colours: ${names[theme]}`}
      onClick={() => {
        const to = next[theme];
        localStorage.setItem(key, to);
        applyTheme(to);
        setTheme(to);
      }}
    >
      <span class="wide">Colours: </span>{names[theme]}
    </button>
  );
}
