import { useState } from "preact/hooks";
import { Stored } from "../api/storage";

type Theme = "auto" | "light" | "dark";
const stored = new Stored("localStorage", "coldaisle.theme");
const next: Record<Theme, Theme> = { auto: "dark", dark: "light", light: "auto" };

function chosen(): Theme {
  const theme = stored.get();
  return theme === "light" || theme === "dark" ? theme : "auto";
}

export function applyTheme(): void {
  const theme = chosen();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("themechange"));
}

export function ThemeButton() {
  const [theme, setTheme] = useState(chosen);
  return (
    <button
      type="button" class="quiet"
      onClick={() => {
        const to = next[theme];
        stored.set(to);
        setTheme(to);
        // The press is seen first: new colours style every element anew.
        requestAnimationFrame(() => setTimeout(applyTheme));
      }}
    >
      Colours: {theme}
    </button>
  );
}
