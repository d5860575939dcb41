// What stands around every page: the rail (a bar at the bottom of a phone), search, how old what
// one sees is, and the person.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { useOverview } from "../api/queries";
import { session } from "../api/session";
import { serviceTime } from "../api/time";
import { ago, duration, timeNear } from "../logic/format";
import { sections } from "../setup";
import { AlarmButton } from "./alarm";
import { chunk } from "./chunk";
import { useNow } from "./clock";
import { useLostContact } from "./contact";
import { StatusMark } from "./states";
import { ThemeButton } from "./theme";
import { useWaiting } from "./title";

const Search = chunk("search", () => import("./search"));

export const navigation = [
  { path: "/", name: "Now", mark: "now" },
  { path: "/incidents", name: "Incidents", mark: "alert" },
  { path: "/rooms", name: "Rooms", mark: "rooms" },
  { path: "/reports", name: "Reports", mark: "reports" },
  { path: "/setup", name: "Setup", mark: "setup" },
] as const;

/** In which part of the page a path is. */
function partOf(path: string, inSetup: boolean): string {
  if (inSetup) return "/setup";
  if (path.startsWith("/sensors/")) return "/rooms";
  return navigation.find((item) => item.path !== "/" && path.startsWith(item.path))?.path ?? "/";
}

export function Shell({ inSetup }: { inSetup: boolean }) {
  const [path] = useLocation();
  const waiting = useWaiting();
  const first = useRef(true);
  // A new page begins at its top, not where the old one was scrolled to. Before it is drawn: a key
  // that is pressed then, Ctrl-K for one, must keep the focus that it moves.
  useLayoutEffect(() => {
    if (!first.current) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [path]);
  const part = partOf(path, inSetup);
  return (
    <>
      <header class="top">
        <Link href="/" class="brand" aria-label="Coldaisle">
          <img src="/icon.svg" alt="" width="24" height="24" /> <span>Coldaisle</span>
        </Link>
        <Search />
        <Live />
        <AlarmButton />
        <Me />
      </header>
      <nav class="rail" aria-label="Pages">
        {navigation.map((item) => (
          <Link
            key={item.path} href={item.path}
            aria-current={path === item.path ? "page" : part === item.path ? "true" : undefined}
          >
            <StatusMark kind={item.mark} /> {item.name}
            {item.path === "/incidents" && waiting > 0 && (
              <span class="count">{waiting}<span class="unseen"> nobody has seen</span></span>
            )}
          </Link>
        ))}
      </nav>
    </>
  );
}

/** How old what the page shows is, by the service's clock. */
function Live() {
  const { data, dataUpdatedAt } = useOverview();
  const lost = useLostContact();
  const now = useNow(1000);
  if (!data) return <p class="live" />;
  if (lost !== null) return <p class="live lost"><StatusMark kind="offline" /> as of {timeNear(lost, now)}</p>;
  if (data.probe.late && !data.past) {
    return <p class="live lost"><StatusMark kind="late" /> {duration(data.probe.lateness_s * 1000)} late</p>;
  }
  return <p class="live"><i aria-hidden="true" /> <span>live,</span> {ago(serviceTime(dataUpdatedAt), now)}</p>;
}

/** Who is signed in, and what is theirs: a popover of the browser, which Escape closes. */
function Me() {
  const email = session.get()?.email ?? "";
  const [path] = useLocation();
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => menu.current?.hidePopover?.(), [path]);
  return (
    <>
      <button type="button" class="quiet me" {...{ popovertarget: "me" }} aria-label={`You: ${email}`}>
        <StatusMark kind="person" /> <span>{email.split("@")[0]}</span>
      </button>
      <div id="me" class="menu" popover="auto" ref={menu}>
        <p class="hint">{email}</p>
        <Link href="/account">Account</Link>
        <Link href="/settings">Display</Link>
        <Link href="/wall">Show on a wall</Link>
        <ThemeButton />
        <button type="button" class="quiet" onClick={() => session.end()}>Sign out</button>
      </div>
    </>
  );
}

export function SetupNavigation() {
  const [path] = useLocation();
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [path]);
  return (
    <nav class="sub" aria-label="Setup" ref={list}>
      {sections.map((section) => (
        <Link key={section.path} href={section.path} aria-current={path === section.path ? "page" : undefined}>
          {section.name}
        </Link>
      ))}
    </nav>
  );
}
