// The sections of Setup, in the order of its list. A new one is one line here: its path begins
// with /setup/, which dashboard.go answers already.
import { chunk } from "./components/chunk";

export const sections = [
  { path: "/setup", name: "Checklist", page: chunk("page", () => import("./pages/setup")) },
  { path: "/rules", name: "Rules", page: chunk("page", () => import("./pages/rules")) },
  { path: "/maintenance", name: "Maintenance", page: chunk("page", () => import("./pages/maintenance")) },
  { path: "/gateways", name: "Gateways", page: chunk("page", () => import("./pages/gateways")) },
  { path: "/persons", name: "People", page: chunk("page", () => import("./pages/persons")) },
  { path: "/keys", name: "API keys", page: chunk("page", () => import("./pages/keys")) },
  { path: "/watches", name: "Watches", page: chunk("page", () => import("./pages/watches")) },
  { path: "/drills", name: "Drills", page: chunk("page", () => import("./pages/drills")) },
  { path: "/predictions", name: "Learning", page: chunk("page", () => import("./pages/predictions")) },
  { path: "/records", name: "Records", page: chunk("page", () => import("./pages/records")) },
  { path: "/audit", name: "Audit log", page: chunk("page", () => import("./pages/audit")) },
  { path: "/account", name: "Account", page: chunk("page", () => import("./pages/account")) },
  { path: "/settings", name: "Display", page: chunk("page", () => import("./pages/settings")) },
];
