// Who changed what: the audit log, newest first, by filters, and as CSV.
import { useInfiniteQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, messageOf, pageOf, unwrap, type LoggedChange } from "../api/client";
import { save } from "../api/download";
import { keys, pageLength, useRooms } from "../api/queries";
import { Action } from "../components/action";
import { Field, Select } from "../components/form";
import { More } from "../components/more";
import { Empty, Failure, Loading } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";
import { toldOf } from "../logic/audit";
import { shownZone } from "../logic/format";
import { clocksChange, inputInstant, inputTime } from "../logic/maintenance";

interface Filter {
  actor_kind?: LoggedChange["actor_kind"]; actor?: string; operation?: string; subject?: string;
  start_time?: string; end_time?: string;
}

export default function AuditPage() {
  useTitle("Audit log");
  const [filter, setFilter] = useState<Filter>({});
  const [refused, setRefused] = useState<unknown>(null);
  const { data, error, refetch, ...pages } = useInfiniteQuery({
    queryKey: [...keys.audit, filter], initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: after }) =>
      pageOf(api.GET("/api/v1/audit", { params: { query: { ...filter, after, limit: pageLength } } })),
    getNextPageParam: ({ next }) => next,
  });
  const rooms = useRooms().data;
  const roomName = (id: number) => rooms?.find((room) => room.id === id)?.name ?? `room ${id}`;
  const entries = data?.pages.flatMap(({ items }) => items);
  const download = () => {
    setRefused(null);
    return unwrap(api.GET("/api/v1/audit", { params: { query: { ...filter, format: "csv" } }, parseAs: "blob" }))
      .then((csv) => save(csv as unknown as Blob, "audit.csv"), setRefused);
  };
  return (
    <>
      <div class="heading">
        <h1>Audit log</h1>
        <Action waits={false} onClick={download}>Download CSV</Action>
      </div>
      <p class="lead">
        Every change of your account, by people, keys and gateways. Nobody can change or remove an entry.
      </p>
      {refused !== null && <p class="error" role="alert">{messageOf(refused)}</p>}
      <Filters onFilter={setFilter} />
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!entries && !error && <Loading what="the audit log" />}
      {entries?.length === 0 && <Empty title="No such change"><p>Nothing in the log matches.</p></Empty>}
      {entries && entries.length > 0 && (
        <div class="card scroll" tabIndex={0} role="group" aria-label="Audit log">
          <table class="stacked log">
            <thead>
              <tr><th scope="col">When</th><th scope="col">Who did what</th><th scope="col">Change</th></tr>
            </thead>
            <tbody>
              {entries.map((entry) => (
                <tr key={entry.id}>
                  <td><Timestamp at={entry.at} /></td>
                  <td class="wraps"><strong>{entry.actor_name}</strong> {toldOf(entry, roomName)}</td>
                  <td><Change entry={entry} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <More {...pages} />
    </>
  );
}

function Change({ entry: { actor, operation, subject, before, after } }: { entry: LoggedChange }) {
  return (
    <details>
      <summary>Show<span class="unseen"> {operation} of {subject}</span></summary>
      <p><code>{operation} {subject}</code> by <code>{actor}</code></p>
      {before !== null && <><p>Before</p><pre tabIndex={0}>{JSON.stringify(before, null, 2)}</pre></>}
      {after !== null && <><p>After</p><pre tabIndex={0}>{JSON.stringify(after, null, 2)}</pre></>}
    </details>
  );
}

function Filters({ onFilter }: { onFilter: (filter: Filter) => void }) {
  const [kind, setKind] = useState<"" | LoggedChange["actor_kind"]>("");
  const [given, setGiven] = useState<Filter>({});
  const zone = shownZone();
  const late = inputTime(given.start_time ?? "", zone) >= inputTime(given.end_time ?? "", zone);
  const filter = (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (late) return form.querySelector<HTMLElement>("[name=end_time]")?.focus();
    const chosen: Filter = kind ? { actor_kind: kind } : {};
    for (const [name] of fields) {
      const value = given[name]?.trim();
      if (value) chosen[name] = name.endsWith("_time") ? inputInstant(value, zone) : value;
    }
    onFilter(chosen);
  };
  return (
    <form class="filters" onSubmit={filter}>
      <Select label="By" value={kind} options={kinds} onChange={setKind} />
      {fields.map(([name, label, type, placeholder]) => (
        <Field key={name} {...{ name, label, type, placeholder }} value={given[name] ?? ""} required={false}
          onInput={(value) => setGiven({ ...given, [name]: value })}
          hint={type === "text" ? undefined : clocksChange(given[name] ?? "", zone)}
          error={late && name === "end_time" ? "Choose a time after From." : null} />
      ))}
      <button class="primary">Filter</button>
    </form>
  );
}

const kinds = [["", "Everybody"], ["person", "People"], ["account", "Accounts, before there were persons"],
  ["key", "API keys"], ["gateway", "Gateways"], ["system", "The service"]] as const;

const fields = [
  ["actor", "Who", "text", "key:5"], ["operation", "What", "text", "deleteSensor"], ["subject", "Of", "text", "room:3"],
  ["start_time", "From", "datetime-local", ""], ["end_time", "Before", "datetime-local", ""],
] as const;
