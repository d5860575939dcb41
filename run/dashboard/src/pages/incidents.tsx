// Incidents: those that are open by room, and the history by day.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link, useSearchParams } from "wouter-preact";
import { useIncidents, useRooms } from "../api/queries";
import { count, plural } from "../logic/format";
import { byDay, byRoom, groups, joined, kinds, waits, type Incident } from "../logic/incidents";
import { ContactNotice, useLostContact } from "../components/contact";
import { Select } from "../components/form";
import { IncidentTable } from "../components/incidents";
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
  const day = (name: string) => (search.get(name) ? Date.parse(`${search.get(name)}T00:00`) : undefined);
  const kind = search.get("kind");
  const to = day("to");
  return {
    set, past: search.get("state") === "all", text: (search.get("text") ?? "").slice(0, longestText), fromDay: search.get("from") ?? "", toDay: search.get("to") ?? "",
    roomID: Number(search.get("room")) || undefined, kind: kind !== null && kind in kinds ? (kind as Incident["kind"]) : undefined,
    // The day that is chosen as the last one is shown whole.
    from: day("from"), to: to === undefined ? undefined : new Date(to).setDate(new Date(to).getDate() + 1),
  };
}

export default function IncidentsPage() {
  useTitle("Incidents");
  const filter = useFilter();
  const { past, text, roomID, kind, set } = filter;
  const words = useSettled(text);
  const shown = useIncidents({ ...filter, text: words }, past);
  const rooms = useRooms();
  const lost = useLostContact();
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (search.current && document.activeElement !== search.current) search.current.value = text;
  }, [text]);

  const found = useMemo(() => joined(shown.data?.pages ?? []), [shown.data]);
  const sections = useMemo(() => (past ? byDay(found) : byRoom(found)), [past, found]);
  const filtered = text !== "" || roomID !== undefined || kind !== undefined || (past && (filter.fromDay || filter.toDay));
  const searching = words !== text || shown.isPlaceholderData;

  return (
    <>
      <div class="heading">
        <h1>Incidents</h1>
        <Link href="/rules">Rules</Link>
        <Link href="/maintenance">Maintenance windows</Link>
      </div>
      <div class="filters" role="search">
        <div class="segments" role="group" aria-label="Which incidents">
          <button type="button" aria-pressed={!past} onClick={() => set("state", "")}>Open</button>
          <button type="button" aria-pressed={past} onClick={() => set("state", "all")}>History</button>
        </div>
        <Select label="Room" value={roomID ?? 0} onChange={(chosen) => set("room", chosen ? String(chosen) : "")} options={[[0, "All rooms"], ...(rooms.data ?? []).map(({ id, name }) => [id, name] as const)]} />
        <Select label="Kind" value={kind ?? ""} onChange={(chosen) => set("kind", chosen)} options={[["", "All kinds"], ...Object.entries(kinds)]} />
        {past && <>
          <div class="field"><label for="from">From</label><input id="from" type="date" value={filter.fromDay} onChange={(event) => set("from", event.currentTarget.value)} /></div>
          <div class="field"><label for="to">To</label><input id="to" type="date" value={filter.toDay} onChange={(event) => set("to", event.currentTarget.value)} /></div>
        </>}
        <div class="field grows"><label for="text">Text</label><input id="text" ref={search} type="search" maxLength={longestText} defaultValue={text} onInput={(event) => set("text", event.currentTarget.value)} /></div>
      </div>
      <ContactNotice />
      {shown.error && lost === null && <Failure error={shown.error} retry={() => void shown.refetch()} />}
      {!shown.data && !shown.error && <Loading what="incidents" />}
      {shown.data && (
        <p class="hint" aria-live="polite">
          {searching ? "Searching…" : <>
            {shown.hasNextPage && "The newest "}{past ? plural(found.length, "incident") : plural(groups(found), "open incident")}
            {past ? shown.hasNextPage ? "." : ", newest first." : `, ${count(groups(found.filter(waits)))} to be seen.`}
          </>}
        </p>
      )}
      {shown.data && !searching && found.length === 0 && (
        <Empty title={filtered ? "None like that" : past ? "No incident yet" : "Nothing to see to"}>
          <p>{filtered ? "No incident fits these filters." : <>A value beyond the limit of a <Link href="/rules">rule</Link>, or a sensor that falls silent, makes an incident.</>}</p>
        </Empty>
      )}
      {found.length > 0 && <div class={searching ? "old" : lost === null ? undefined : "stale"}><IncidentTable sections={sections} dated={past} /></div>}
      {shown.hasNextPage && (
        <button type="button" aria-disabled={shown.isFetchingNextPage} onClick={() => !shown.isFetchingNextPage && void shown.fetchNextPage()}>
          {shown.isFetchingNextPage ? "Loading…" : "Show older ones"}
        </button>
      )}
    </>
  );
}
