// The page of each path. dashboard.go has the list of paths too, because it answers them.
import { useEffect } from "preact/hooks";
import { Link, Redirect, Route, Switch, useLocation } from "wouter-preact";
import { useLocationProperty } from "wouter-preact/use-browser-location";
import { preferences } from "./api/preferences";
import { session } from "./api/session";
import { NowPage } from "./pages/now";
import { Acting } from "./components/acting";
import { chunk, preloadChunks } from "./components/chunk";
import { SetupNavigation, Shell } from "./components/shell";
import { SessionEnd } from "./components/sessionend";
import { Boundary } from "./components/states";
import { useStore } from "./components/store";
import { sections } from "./setup";

const SignInPage = chunk("page", () => import("./components/signin"));
const JoinPage = chunk("page", () => import("./pages/join"));
const RoomsPage = chunk("page", () => import("./pages/rooms"));
const RoomPage = chunk("page", () => import("./pages/room"));
const SensorPage = chunk("page", () => import("./pages/sensor"));
const IncidentsPage = chunk("page", () => import("./pages/incidents"));
const IncidentPage = chunk("page", () => import("./pages/incident"));
const WallPage = chunk("page", () => import("./pages/wall"));
const ReportPage = chunk("page", () => import("./pages/report"));

/** A wall's browser is started with the key behind #key=, which no browser sends. */
const keyInAddress = () => /^\/wall#key=(.+)$/.exec(location.pathname + location.hash)?.[1] ?? "";

/** What pages were called, for bookmarks. */
const former = [["/alerts", "/incidents"], ["/thresholds", "/rules"], ["/report", "/reports"]] as const;

export function App() {
  const [path] = useLocation();
  const given = useLocationProperty(keyInAddress);
  const signedIn = useStore(session);
  // What is shown depends on them everywhere.
  const { unit, zone } = useStore(preferences);
  const display = path === "/settings" ? "" : unit + zone;
  const present = signedIn !== null;
  useEffect(() => {
    if (present) preloadChunks();
  }, [present]);
  if (path === "/join") return <JoinPage />;
  // Who is signed in beside it is not shown on the wall.
  if (!signedIn || given) return <SignInPage given={given} />;
  // A key reads the overview alone.
  if (signedIn.key || path === "/wall") {
    return <main id="main"><Boundary><WallPage /></Boundary>{!signedIn.key && <SessionEnd />}</main>;
  }
  const inSetup = sections.some((section) => section.path === path);
  return (
    <>
      <a class="skip" href="#main">Skip to content</a>
      <Shell inSetup={inSetup} />
      <main id="main" tabIndex={-1}>
        {inSetup && <SetupNavigation />}
        {/* When another person signs in again, or units were changed in another tab, the page is rendered anew. */}
        <Boundary key={`${signedIn.person} ${path} ${display}`}>
          <Switch>
            <Route path="/" component={NowPage} />
            <Route path="/rooms" component={RoomsPage} />
            <Route path="/rooms/:id">{({ id }) => <RoomPage key={id} id={Number(id)} />}</Route>
            <Route path="/sensors/:id">{({ id }) => <SensorPage key={id} id={decodeURIComponent(id)} />}</Route>
            <Route path="/incidents" component={IncidentsPage} />
            <Route path="/incidents/:id" component={IncidentPage} />
            <Route path="/reports" component={ReportPage} />
            {sections.map((section) => <Route key={section.path} path={section.path} component={section.page} />)}
            {former.map(([from, to]) => <Route key={from} path={from}><Redirect to={to} replace /></Route>)}
            <Route>
              <h1>There is no such page</h1>
              <p>The address may be mistyped, or what it led to is gone.</p>
              <p><Link href="/">Go to Now</Link></p>
            </Route>
          </Switch>
        </Boundary>
      </main>
      <Acting />
      <SessionEnd />
    </>
  );
}
