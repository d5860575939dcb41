import { QueryClientProvider } from "@tanstack/preact-query";
import { render } from "preact";
import { followOverview, queryClient } from "./api/queries";
import { App } from "./app";
import "./components/back";
import { keepStill } from "./components/press";
import { applyTheme } from "./components/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";

applyTheme();
keepStill();
followOverview();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<QueryClientProvider client={queryClient}><App /></QueryClientProvider>, root);
}
