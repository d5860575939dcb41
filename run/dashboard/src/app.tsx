// The layout of every page, and the page of each path. dashboard.go has the list of
// paths too, because it answers them.
import { useQueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link, Redirect, Route, Switch, useLocation } from "wouter-preact";
import { forgetTold } from "./api/alarm";
import { preferences } from "./api/preferences";
import { session } from "./api/session";
import { JoinPage } from "./pages/join";
import { OverviewPage } from "./pages/overview";
import { AlarmButton } from "./components/alarm";
import { chunk, preloadChunks } from "./components/chunk";
import { SessionEnd, SignInPage } from "./components/signin";
import { Boundary, Empty } from "./components/states";
import { ThemeButton } from "./components/theme";
import { useWaiting } from "./components/title";

const RoomPage = chunk("page", () => import("./pages/room"));
const SensorPage = chunk("page", () => import("./pages/sensor"));
const IncidentsPage = chunk("page", () => import("./pages/incidents"));
const IncidentPage = chunk("page", () => import("./pages/incident"));
const MaintenancePage = chunk("page", () => import("./pages/maintenance"));
const RulesPage = chunk("page", () => import("./pages/rules"));
const PredictionsPage = chunk("page", () => import("./pages/predictions"));
const GatewaysPage = chunk("page", () => import("./pages/gateways"));
const PersonsPage = chunk("page", () => import("./pages/persons"));
const KeysPage = chunk("page", () => import("./pages/keys"));
const DrillsPage = chunk("page", () => import("./pages/drills"));
const RecordsPage = chunk("page", () => import("./pages/records"));
const WatchesPage = chunk("page", () => import("./pages/watches"));
const AuditPage = chunk("page", () => import("./pages/audit"));
const WallPage = chunk("page", () => import("./pages/wall"));
const AccountPage = chunk("page", () => import("./pages/account"));
const ReportPage = chunk("page", () => import("./pages/report"));
const SetupPage = chunk("page", () => import("./pages/setup"));
const SettingsPage = chunk("page", () => import("./pages/settings"));

export function App() {
  const [path] = useLocation();
  const queries = useQueryClient();
  const signedIn = useSyncExternalStore(session.subscribe, session.get);
  // What is shown depends on them everywhere.
  const { unit, zone } = useSyncExternalStore(preferences.subscribe, preferences.get);
  const display = path === "/settings" ? "" : unit + zone;
  const present = signedIn !== null;
  useEffect(() => {
    if (present) preloadChunks();
    // Signed out, here or in another tab: who signs in next must not see what was here.
    else {
      queries.clear();
      forgetTold();
    }
  }, [present]);
  if (path === "/join") return <JoinPage />;
  if (!signedIn) return <SignInPage />;
  // A key reads the overview alone.
  if (signedIn.key || path === "/wall") return <main id="main"><Boundary><WallPage /></Boundary>{!signedIn.key && <SessionEnd />}</main>;
  return (
    <>
      <a class="skip" href="#main">Skip to content</a>
      <Header />
      <main id="main" tabIndex={-1}>
        {/* When another customer signs in again over this page, or units were changed in another tab, it is rendered anew. */}
        <Boundary key={`${signedIn.customerID} ${path} ${display}`}>
          <Switch>
            <Route path="/" component={OverviewPage} />
            <Route path="/rooms/:id">{({ id }) => <RoomPage key={id} id={Number(id)} />}</Route>
            <Route path="/sensors/:id">{({ id }) => <SensorPage key={id} id={decodeURIComponent(id)} />}</Route>
            <Route path="/incidents" component={IncidentsPage} />
            <Route path="/incidents/:id" component={IncidentPage} />
            <Route path="/maintenance" component={MaintenancePage} />
            <Route path="/rules" component={RulesPage} />
            {/* What these pages were called, for bookmarks. */}
            <Route path="/alerts"><Redirect to="/incidents" replace /></Route>
            <Route path="/thresholds"><Redirect to="/rules" replace /></Route>
            <Route path="/predictions" component={PredictionsPage} />
            <Route path="/gateways" component={GatewaysPage} />
            <Route path="/persons" component={PersonsPage} />
            <Route path="/keys" component={KeysPage} />
            <Route path="/watches" component={WatchesPage} />
            <Route path="/drills" component={DrillsPage} />
            <Route path="/records" component={RecordsPage} />
            <Route path="/audit" component={AuditPage} />
            <Route path="/account" component={AccountPage} />
            <Route path="/report" component={ReportPage} />
            <Route path="/setup" component={SetupPage} />
            <Route path="/settings" component={SettingsPage} />
            <Route><Empty title="There is no such page"><p><Link href="/">Go to the overview</Link></p></Empty></Route>
          </Switch>
        </Boundary>
      </main>
      <SessionEnd />
    </>
  );
}

const navigation = [
  ["/", "Overview"], ["/incidents", "Incidents"], ["/predictions", "Predictions"], ["/report", "Report"], ["/settings", "Settings"],
] as const;

const settings = [
  ["/settings", "Display"], ["/rules", "Rules"], ["/maintenance", "Maintenance"], ["/gateways", "Gateways"],
  ["/persons", "Persons"], ["/keys", "API keys"], ["/watches", "Watches"], ["/drills", "Drills"], ["/records", "Records"], ["/audit", "Audit log"], ["/account", "Account"], ["/setup", "First steps"],
] as const;

function Header() {
  const [path] = useLocation();
  const open = useWaiting();
  const setting = settings.some(([href]) => href === path);
  const first = useRef(true);
  // Where the screen is narrow, pages and tools are behind a button.
  const menu = useRef<HTMLButtonElement>(null);
  const [unfolded, setUnfolded] = useState(false);
  useEffect(() => {
    setUnfolded(false);
    document.querySelector(".sub [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
    // A new page begins at its top, not where the old one was scrolled to.
    if (!first.current) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [path]);
  return (
    <header
      class={`top${unfolded ? " unfolded" : ""}`}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !unfolded) return;
        setUnfolded(false);
        menu.current?.focus();
      }}
    >
      <Link href="/" class="brand"><img src="/icon.svg" alt="" width="28" height="28" /> Coldaisle</Link>
      <button type="button" class="quiet menu" ref={menu} aria-expanded={unfolded} aria-controls="pages" onClick={() => setUnfolded(!unfolded)}>
        Menu{!unfolded && open > 0 && <span class="count">{open}<span class="unseen"> incidents to be seen</span></span>}
      </button>
      <nav id="pages" aria-label="Pages">
        {navigation.map(([href, name]) => (
          <Link key={href} href={href} aria-current={path === href ? "page" : href === "/settings" && setting ? "true" : undefined}>
            {name}
            {href === "/incidents" && open > 0 && <span class="count">{open}<span class="unseen"> to be seen</span></span>}
          </Link>
        ))}
      </nav>
      <div class="tools">
        <AlarmButton />
        <ThemeButton />
        <button type="button" class="quiet" onClick={() => session.end()}>Sign out</button>
      </div>
      {setting && (
        <nav class="sub" aria-label="Settings">
          {settings.map(([href, name]) => <Link key={href} href={href} aria-current={path === href ? "page" : undefined}>{name}</Link>)}
        </nav>
      )}
    </header>
  );
}
