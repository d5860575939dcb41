// Incidents as a table. The keys work on the row that has the focus, and nowhere else.
import { Link } from "wouter-preact";
import { preferences } from "../api/preferences";
import { capital, timeNear } from "../logic/format";
import { wrong } from "../logic/excursions";
import { endingOf, lasting, nowOf, titleOf, type Incident, type Section } from "../logic/incidents";
import { Actions } from "./acting";
import { useNow } from "./clock";
import { memo } from "./memo";
import { StatusMark, useLeaving } from "./states";
import { Timestamp } from "./timestamp";

/** Hundreds of rows are rendered anew for new incidents only. */
export const IncidentTable = memo(function IncidentTable({ sections }: { sections: readonly Section[] }) {
  const now = useNow(15_000);
  return (
    <table class="incidents" onKeyDown={moveAlong}>
      <thead>
        <tr>
          <th scope="col">Incident</th><th scope="col">Now</th><th scope="col">Lasts</th><th scope="col">Who has it</th>
          <th scope="col"><span class="unseen">Actions</span></th>
        </tr>
      </thead>
      {sections.map(({ key, title, incidents }) => (
        <tbody key={key}>
          {title && <tr class="room-row"><th scope="rowgroup" colSpan={5}><h2>{title}</h2></th></tr>}
          {incidents.map((incident) => <Row key={incident.id} incident={incident} now={now} />)}
        </tbody>
      ))}
    </table>
  );
});

/** Arrows move between incidents, and "a" takes the one that has the focus. */
export function moveAlong(event: KeyboardEvent) {
  const here = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
  if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(here);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to !== undefined) rows[to]?.focus();
  else if (event.key === "a" && preferences.get().singleKeys) here.closest("tr, article")
    ?.querySelector<HTMLElement>("[data-take] button")?.click();
  else return;
  event.preventDefault();
}

export const marks = { too_hot: "up", too_humid: "up", too_cold: "down", too_dry: "down", silent: "offline",
  sensor: "alert", unusual: "alert" } as const;

/** Whether somebody must still look. */
const waits = ({ state, silenced, seen }: Incident) => !silenced && (state === "open" || (state === "over" && !seen));

function Row({ incident, now }: { incident: Incident; now: number }) {
  return (
    <tr ref={useLeaving<HTMLTableRowElement>()}
      class={`${waits(incident) ? "waits" : "seen"} ${incident.severity} ${incident.state}`}>
      <td class="what">
        <Link href={`/incidents/${incident.id}`} data-row>
          <StatusMark kind={marks[incident.cause]} /> <span>{titleOf(incident)}</span>
          {incident.severity === "critical" && <span class="unseen">, critical</span>}
        </Link>
        <small>{wrong(incident.worst)}</small>
      </td>
      <td class="now">
        <span class="cell-name">Now </span>
        {capital(incident.state === "over" ? `over, ${endingOf(incident)}` : nowOf(incident, now).join(", "))}
      </td>
      <td>
        <span class="cell-name">Lasts </span>{lasting(incident, now)}
        <small>{incident.state === "over" ? "from " : "since "}<Timestamp at={incident.start_time} /></small>
      </td>
      <td><Holder incident={incident} now={now} /></td>
      <td>{incident.state !== "over" && <Actions incident={incident} short />}</td>
    </tr>
  );
}

/** Who has it, or had it, and what they said. */
export function Holder({ incident, now }: { incident: Incident; now: number }) {
  const { state, silenced, seen, late, taken_by: taken, taken_at: at, snoozed_until: until, comment } = incident;
  const said = comment !== null && ` · ${comment}`;
  if (taken !== null) {
    return <span class="state">
      <StatusMark kind="ok" /> {taken}
      <small>{silenced ? "in maintenance" : until !== null ? `calls again at ${timeNear(Date.parse(until), now)}`
        : at !== null && <Timestamp at={at} />}{said}</small>
    </span>;
  }
  if (silenced) return <span class="state">Silenced<small>in maintenance{said}</small></span>;
  if (state === "over") return <span class="state">
    {seen ? "Seen" : "Over, not seen"}{(late || comment) && <small>{late && "reported late"}{said}</small>}
  </span>;
  return <span class="state open">
    {late ? "Reported late" : "Nobody has it"}{comment && <small>{comment}</small>}
  </span>;
}
