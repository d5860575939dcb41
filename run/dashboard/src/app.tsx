// The layout of every page, and the page of each path. dashboard.go has the list of
// paths too, because it answers them.
import { useQueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import { Link, Route, Switch, useLocation } from "wouter-preact";
import { useActiveEpisodes } from "./api/queries";
import { session } from "./api/session";
import { OverviewPage } from "./pages/overview";
import { chunk, preloadChunks } from "./components/chunk";
import { SignInAgain, SignInPage } from "./components/signin";
import { Boundary, Empty } from "./components/states";
import { ThemeButton } from "./components/theme";

const RoomPage = chunk("page", () => import("./pages/room"));
const SensorPage = chunk("page", () => import("./pages/sensor"));
const AlertsPage = chunk("page", () => import("./pages/alerts"));
const ThresholdsPage = chunk("page", () => import("./pages/thresholds"));
const PredictionsPage = chunk("page", () => import("./pages/predictions"));
const GatewaysPage = chunk("page", () => import("./pages/gateways"));
const AccountPage = chunk("page", () => import("./pages/account"));

export function App() {
  const [path] = useLocation();
  const signedIn = useSyncExternalStore(session.subscribe, session.get);
  const expired = useSyncExternalStore(session.subscribe, session.expired);
  const present = signedIn !== null;
  useEffect(() => {
    if (present) preloadChunks();
  }, [present]);
  if (!signedIn) return <SignInPage />;
  return (
    <>
      <a class="skip" href="#main">Skip to content</a>
      <Header />
      <main id="main" tabIndex={-1}>
        {/* When another customer signs in again over this page, it is rendered anew. */}
        <Boundary key={`${signedIn.customerID} ${path}`}>
          <Switch>
            <Route path="/" component={OverviewPage} />
            <Route path="/rooms/:id">{({ id }) => <RoomPage key={id} id={Number(id)} />}</Route>
            <Route path="/sensors/:id">{({ id }) => <SensorPage key={id} id={decodeURIComponent(id)} />}</Route>
            <Route path="/alerts" component={AlertsPage} />
            <Route path="/thresholds" component={ThresholdsPage} />
            <Route path="/predictions" component={PredictionsPage} />
            <Route path="/gateways" component={GatewaysPage} />
            <Route path="/account" component={AccountPage} />
            <Route><Empty title="There is no such page"><p><Link href="/">Go to the overview</Link></p></Empty></Route>
          </Switch>
        </Boundary>
      </main>
      {expired && <SignInAgain />}
    </>
  );
}

const navigation = [
  ["/", "Overview"], ["/alerts", "Alerts"], ["/thresholds", "Thresholds"], ["/predictions", "Predictions"], ["/gateways", "Gateways"],
  ["/account", "Account"],
] as const;

function Header() {
  const [path] = useLocation();
  const queries = useQueryClient();
  const open = useActiveEpisodes().data?.length ?? 0;
  const first = useRef(true);
  useEffect(() => {
    // A new page begins at its top, not where the old one was scrolled to.
    if (!first.current) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [path]);
  return (
    <header class="top">
      <Link href="/" class="brand"><img src="/icon.svg" alt="" width="28" height="28" /> Coldaisle</Link>
      <nav aria-label="Pages">
        {navigation.map(([href, name]) => (
          <Link key={href} href={href} aria-current={path === href ? "page" : undefined}>
            {name}
            {href === "/alerts" && open > 0 && <span class="count">{open}<span class="unseen"> open</span></span>}
          </Link>
        ))}
      </nav>
      <div class="tools">
        <ThemeButton />
        <button type="button" class="quiet" onClick={() => { session.end(); queries.clear(); }}>Sign out</button>
      </div>
    </header>
  );
}
