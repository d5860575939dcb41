// Incidents: those that last, and the history by day.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link, useSearchParams } from "wouter-preact";
import { api, messageOf, unwrap } from "../api/client";
import { useIncidents } from "../api/incidents";
import { keys, listLimit, refresh, useOverview, useRooms } from "../api/queries";
import { count, plural, shownZone } from "../logic/format";
import { byDay, causes, type Incident } from "../logic/incidents";
import { instantOf, lastDay } from "../logic/maintenance";
import { Action } from "../components/action";
import { ContactNotice, useLostContact } from "../components/contact";
import { Select } from "../components/form";
import { AlertRecords } from "../components/alerts";
import { IncidentTable } from "../components/incidents";
import { May } from "../components/may";
import { More } from "../components/more";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

/** The longest text that the API looks for. */
const longestText = 100;

/** A value as soon as it stays the same for a moment. */
function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 250);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** What is shown, as the address says it, so that it can be shared and gone back to. */
function useFilter() {
  const [search, setSearch] = useSearchParams();
  const set = (name: string, value: string) => setSearch((before) => {
    const next = new URLSearchParams(before);
    if (value) next.set(name, value);
    else next.delete(name);
    return next;
  }, { replace: true });
  // A day begins on the clocks by which incidents are shown; the last one is shown whole.
  const day = (name: string, whole = 0) => {
    const date = Date.parse(search.get(name) ?? "");
    return Number.isNaN(date) ? undefined : instantOf(date + whole, shownZone());
  };
  const cause = search.get("cause");
  return {
    set, shown: views.find(([view]) => view === search.get("state"))?.[0] ?? "",
    text: (search.get("text") ?? "").slice(0, longestText),
    fromDay: search.get("from") ?? "", toDay: search.get("to") ?? "",
    roomID: Number(search.get("room")) || undefined,
    cause: cause !== null && cause in causes ? (cause as Incident["cause"]) : undefined,
    from: day("from"), to: day("to", 86_400_000),
  };
}

/** What is shown, by the address. */
const views = [["", "Now"], ["all", "History"], ["alerts", "Alert records"]] as const;

export default function IncidentsPage() {
  useTitle("Incidents");
  const filter = useFilter();
  const { shown, set } = filter;
  return (
    <>
      <div class="heading">
        <h1>Incidents</h1>
        <Link href="/rules">Rules</Link>
        <Link href="/maintenance">Maintenance windows</Link>
      </div>
      <div class="segments" role="group" aria-label="Which incidents">
        {views.map(([view, name]) => (
          <button key={view} type="button" aria-pressed={shown === view}
            onClick={() => set("state", view)}>{name}</button>
        ))}
      </div>
      <ContactNotice />
      {shown === "all" ? <History filter={filter} /> : shown === "alerts" ? <AlertRecords /> : <Now />}
    </>
  );
}

/** What lasts, in the service's order, and what is over and nobody has seen. */
function Now() {
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [seeing, setSeeing] = useState(false);
  const [refused, setRefused] = useState<unknown>(null);
  const unseen = data?.incident_counts.unseen ?? 0;
  const over = useIncidents({ state: "unseen" }, unseen > 0);
  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="incidents" />;
  const { incidents, incident_counts: counts } = data;
  const found = over.data?.pages.flatMap(({ items }) => items) ?? [];
  const see = async () => {
    setSeeing(true);
    setRefused(null);
    try {
      // Those that are listed: one that has ended since must stay.
      for (let i = 0; i < found.length; i += listLimit) {
        const ids = found.slice(i, i + listLimit).map(({ id }) => id);
        await unwrap(api.POST("/api/v1/incidents/seen", { body: { ids } }));
      }
      await refresh(keys.live);
    } catch (error) {
      setRefused(error);
    } finally {
      setSeeing(false);
    }
  };
  return (
    <div class={lost === null ? "column" : "column stale"}>
      <p class="hint" aria-live="polite">
        {counts.lasting === 0 ? "No incident lasts."
          : `${plural(counts.lasting, "incident")} ${counts.lasting === 1 ? "lasts" : "last"}: nobody has `
            + `${count(counts.open)}, ${count(counts.taken)} taken, ${count(counts.silenced)} in maintenance.`}
      </p>
      {counts.lasting === 0 && unseen === 0 && (
        <Empty title="No incident">
          <p>An incident begins when a value is beyond the limit of
            a <Link href="/rules">rule</Link>, or a sensor falls silent.</p>
        </Empty>
      )}
      {incidents.length > 0 && <IncidentTable sections={[{ key: "now", title: "", incidents }]} />}
      {unseen > 0 && (
        <section class="column" aria-labelledby="over">
          <div class="heading">
            <h2 id="over">Over, not seen: {count(unseen)}</h2>
            <May role="operator">
              {found.length > 0 && <Action waits={seeing && "One moment…"} onClick={see}>
                {found.length < unseen ? `Mark these ${found.length} as seen` : "Mark all as seen"}
              </Action>}
            </May>
          </div>
          {refused !== null && <p class="error" role="alert">{messageOf(refused)}</p>}
          {over.error && <Failure error={over.error} retry={() => void over.refetch()} />}
          {found.length > 0 && <IncidentTable sections={byDay(found)} />}
          <More {...over} />
        </section>
      )}
    </div>
  );
}

function History({ filter }: { filter: ReturnType<typeof useFilter> }) {
  const { text, roomID, cause, fromDay, toDay, set } = filter;
  const words = useSettled(text);
  const shown = useIncidents({ ...filter, text: words });
  const rooms = useRooms();
  const lost = useLostContact();
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (search.current && document.activeElement !== search.current) search.current.value = text;
  }, [text]);
  const found = useMemo(() => shown.data?.pages.flatMap(({ items }) => items) ?? [], [shown.data]);
  const sections = useMemo(() => byDay(found), [found]);
  const filtered = text !== "" || roomID !== undefined || cause !== undefined || fromDay || toDay;
  const searching = words !== text || shown.isPlaceholderData;
  return (
    <>
      <div class="filters">
        <Select label="Room" value={roomID ?? 0} onChange={(chosen) => set("room", chosen ? String(chosen) : "")}
          options={[[0, "All rooms"], ...(rooms.data ?? []).map(({ id, name }) => [id, name] as const)]} />
        <Select label="Cause" value={cause ?? ""} onChange={(chosen) => set("cause", chosen)}
          options={[["", "All causes"], ...Object.entries(causes)]} />
        <div class="field"><label for="from">From</label><input id="from" type="date" value={fromDay} max={lastDay}
          onInput={(event) => set("from", event.currentTarget.value)} /></div>
        <div class="field"><label for="to">To</label><input id="to" type="date" value={toDay} max={lastDay}
          onInput={(event) => set("to", event.currentTarget.value)} /></div>
        <div class="field grows">
          <label for="text">Text</label>
          <input id="text" ref={search} type="search" maxLength={longestText} defaultValue={text}
            onInput={(event) => set("text", event.currentTarget.value)} />
        </div>
      </div>
      {shown.error && lost === null && <Failure error={shown.error} retry={() => void shown.refetch()} />}
      {!shown.data && !shown.error && <Loading what="incidents" />}
      {shown.data && <p class="hint" aria-live="polite">
        {searching ? "Searching…" : `${plural(shown.data.pages[0]?.total ?? 0, "incident")}, newest first.`}
      </p>}
      {shown.data && !searching && found.length === 0 && (
        <Empty title={filtered ? "No match" : "No incident yet"}>
          <p>{filtered ? "No incident fits these filters." : "Past incidents are listed here."}</p>
        </Empty>
      )}
      {found.length > 0 && <div class={searching ? "old" : lost === null ? undefined : "stale"}>
        <IncidentTable sections={sections} />
      </div>}
      <More {...shown} />
    </>
  );
}
