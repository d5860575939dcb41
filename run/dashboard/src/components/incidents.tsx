// Incidents as a table: sections, in them incidents and groups of them, each to be
// unfolded. The keys work on the row that has the focus, and nowhere else.
import { useQueryClient } from "@tanstack/react-query";
import { Fragment } from "preact";
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap } from "../api/client";
import { preferences } from "../api/preferences";
import { keys, useIncident } from "../api/queries";
import { count, inWords, localTime, plural, timeOfDay } from "../logic/format";
import { groupTitle, lasting, nameOf, oneIn, stretchOf, valueOf, waits, wrong, type Entry, type Incident, type Section } from "../logic/incidents";
import { useNow } from "./clock";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";
import { Judgement } from "./judgement";
import { Failure, Loading, StatusMark } from "./states";
import { Timestamp } from "./timestamp";

interface Acknowledging { title: string; incidents: readonly Incident[] }

/** Dated: of the past. Hundreds of rows are rendered anew for new incidents only. */
export const IncidentTable = memo(function IncidentTable({ sections, dated = false }: { sections: readonly Section[]; dated?: boolean }) {
  const now = useNow(15_000);
  const [acknowledging, setAcknowledging] = useState<Acknowledging | null>(null);
  const acknowledge = (title: string, incidents: readonly Incident[]) => setAcknowledging({ title, incidents: incidents.filter(({ acknowledged }) => !acknowledged) });
  return (
    <>
      <table class="incidents" onKeyDown={moveAlong}>
        <thead>
          <tr><th scope="col">Incident</th><th scope="col">Now</th><th scope="col">Peak</th><th scope="col">Lasts</th><th scope="col">State</th><th scope="col"><span class="unseen">Actions</span></th></tr>
        </thead>
        {sections.map(({ key, title, entries }) => {
          const open = entries.flatMap(({ members }) => members).filter(({ acknowledged }) => !acknowledged);
          return (
            <tbody key={key}>
              {title && <tr class="room-row">
                <th scope="rowgroup" colSpan={5}><h2>{title}</h2></th>
                <td>
                  {!dated && open.length > 1 && (
                    <button type="button" class="quiet" onClick={() => acknowledge(`Acknowledge ${plural(open.length, "incident")} in ${title}`, open)}>
                      Acknowledge all {count(open.length)}<span class="unseen"> in {title}</span>
                    </button>
                  )}
                </td>
              </tr>}
              {entries.map((entry) => entry.members.length > 1
                ? <GroupRows key={entry.id} entry={entry} now={now} onAcknowledge={acknowledge} />
                : <IncidentRows key={entry.id} incident={entry.members[0]} now={now} dated={dated} onAcknowledge={acknowledge} />)}
            </tbody>
          );
        })}
      </table>
      {acknowledging && <Acknowledge {...acknowledging} onClose={() => setAcknowledging(null)} />}
    </>
  );
});

/** Arrows move between rows, and "a" acknowledges the row that has the focus. */
function moveAlong(event: KeyboardEvent) {
  const here = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
  if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(here);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to !== undefined) rows[to]?.focus();
  else if (event.key === "a" && preferences.get().singleKeys) here.closest("tr")?.querySelector<HTMLElement>("[data-acknowledge]")?.click();
  else return;
  event.preventDefault();
}

interface RowProps { now: number; onAcknowledge: (title: string, incidents: readonly Incident[]) => void }

function GroupRows({ entry, ...row }: RowProps & { entry: Entry }) {
  const [unfolded, setUnfolded] = useState(false);
  const { members } = entry;
  const [worst] = members;
  const open = members.filter(({ acknowledged }) => !acknowledged);
  const title = groupTitle(entry);
  const all = stretchOf(members);
  return (
    <>
      <tr class={`${members.some(waits) ? "waits" : "seen"} ${worst.severity} ${worst.state}`}>
        <td class="what">
          <Toggle incident={worst} unfolded={unfolded} onToggle={() => setUnfolded(!unfolded)}>{title}</Toggle>
          <small>worst: {nameOf(worst)}</small>
        </td>
        <Values incident={worst} />
        <td><span class="cell-name">Lasts </span>{lasting(all, row.now)}<small>since <Timestamp at={all.begin} /></small></td>
        <td>{open.length === members.length ? <State incident={{ ...worst, end_time: all.end }} /> : <Acknowledged members={members} />}</td>
        <td>{open.length > 0 && <AcknowledgeButton what={title} number={open.length} onClick={() => row.onAcknowledge(title, open)} />}</td>
      </tr>
      {unfolded && members.map((incident) => <IncidentRows key={incident.id} incident={incident} inside {...row} />)}
    </>
  );
}

function IncidentRows({ incident, now, inside, dated, onAcknowledge }: RowProps & { incident: Incident; inside?: boolean; dated?: boolean }) {
  const [unfolded, setUnfolded] = useState(false);
  const name = nameOf(incident);
  const stretch = stretchOf([incident]);
  return (
    <>
      <tr class={`${rowClass(incident)}${inside ? " inside" : ""}`}>
        <td class="what">
          <Toggle incident={incident} unfolded={unfolded} onToggle={() => setUnfolded(!unfolded)}>{name}</Toggle>
          <small>{wrong(incident)}{dated && incident.room_name && ` · ${incident.room_name}`}</small>
        </td>
        <Values incident={incident} />
        <td><span class="cell-name">Lasts </span>{lasting(stretch, now)}<small>{incident.state === "lasting" ? "since " : "from "}<Timestamp at={stretch.begin} /></small></td>
        <td><State incident={incident} /></td>
        <td>{!incident.acknowledged && <AcknowledgeButton what={name} onClick={() => onAcknowledge(`Acknowledge ${name}`, [incident])} />}</td>
      </tr>
      {unfolded && <tr class="detail-row"><td colSpan={6}><Detail id={incident.id} /></td></tr>}
    </>
  );
}

const rowClass = (incident: Incident) => `${waits(incident) ? "waits" : "seen"} ${incident.severity} ${incident.state}`;

function Toggle({ incident, unfolded, onToggle, children }: { incident: Incident; unfolded: boolean; onToggle: () => void; children: string }) {
  return (
    <button type="button" class="unfold" data-row aria-expanded={unfolded} onClick={onToggle}>
      <StatusMark kind={incident.kind === "silence" ? "offline" : incident.direction === "below" ? "down" : "up"} />
      <span>{children}</span>
      {incident.severity === "critical" && <span class="unseen">, critical</span>}
    </button>
  );
}

function Values({ incident }: { incident: Incident }) {
  return (
    <>
      <td class="now"><span class="cell-name">Now </span>{incident.state === "resolved" ? "over" : valueOf(incident, incident.value_now)}</td>
      <td><span class="cell-name">Peak </span>{valueOf(incident, incident.peak)}</td>
    </>
  );
}

function AcknowledgeButton({ what, number, onClick }: { what: string; number?: number; onClick: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const element = button.current;
    // The dialog gives the focus back to it, and then it goes with what it did: its row has the focus.
    return () => { if (element && document.activeElement === element) element.closest("tr")?.querySelector<HTMLElement>("[data-row]")?.focus({ preventScroll: true }); };
  }, []);
  return (
    <button ref={button} type="button" data-acknowledge onClick={onClick}>
      Acknowledge{number !== undefined && ` ${count(number)}`}<span class="unseen"> {what}</span>
    </button>
  );
}

function State({ incident }: { incident: Incident }) {
  if (incident.acknowledged) {
    return <span class="state"><StatusMark kind="ok" /> {incident.acknowledged_by ?? "Acknowledged"}<small>{incident.acknowledged_at && <Timestamp at={incident.acknowledged_at} />}{incident.comment && ` · ${incident.comment}`}</small></span>;
  }
  if (incident.silenced) return <span class="state">Silenced<small>in maintenance</small></span>;
  if (incident.state === "resolved") return <span class="state">Over, not seen<small>{incident.late ? "reported late" : incident.end_time && <>at <Timestamp at={incident.end_time} /></>}</small></span>;
  return <span class="state open">Nobody has it</span>;
}

/** Who has how many of a group. */
function Acknowledged({ members }: { members: readonly Incident[] }) {
  const seen = members.filter(({ acknowledged }) => acknowledged);
  const texts = new Set(seen.flatMap(({ acknowledged_by, comment }) => [acknowledged_by, comment]).filter(Boolean));
  return <span class="state">{count(seen.length)} of {count(members.length)} acknowledged{texts.size > 0 && <small>{[...texts].join(" · ")}</small>}</span>;
}

const events: Record<string, string> = {
  opened: "Opened", reopened: "Came back", cleared: "Back within its limit", acknowledged: "Acknowledged", unacknowledged: "Acknowledgement withdrawn",
  merged: "Joined with an earlier incident", resolved: "Ended",
};
const endings: Record<string, string> = {
  cleared: "values came back", rule_changed: "its rule was changed", rule_deleted: "its rule was deleted", sensor_moved: "the sensor was moved",
  sensor_deleted: "the sensor was deleted",
};

function Detail({ id }: { id: string }) {
  const { data: incident, error, refetch } = useIncident(id);
  if (!incident) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="the incident" />;
  const { limit, band_low: low, band_high: high, probability, earliest, latest } = incident;
  const facts: (readonly [string, string | null])[] = [
    ["Limit", limit === null ? null : valueOf(incident, limit)],
    ["Passes it", earliest === null || latest === null ? null : `${timeOfDay(Date.parse(earliest))} to ${timeOfDay(Date.parse(latest))}`],
    ["Usual", low === null || high === null ? null : `${valueOf(incident, low)} to ${valueOf(incident, high)}`],
    ["So unusual", probability === null ? null : `one hour in ${count(oneIn(probability))} when nothing is wrong`],
    ["Newest reading", incident.kind === "silence" ? localTime(Date.parse(incident.last_time)) : null],
    ["Room", incident.room_name], ["Node", incident.sensor_id], ["Gateway", incident.gateway_id],
    ["Came back", incident.reopened > 0 ? plural(incident.reopened, "time") : null],
    ["Alerts", incident.kind === "threshold" ? count(incident.alert_count) : null],
  ];
  return (
    <div class="incident-detail">
      <div>
        <p>{inWords(incident.reason)}</p>
        <dl class="facts">{facts.map(([name, value]) => value !== null && <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
        {incident.kind === "anomaly" && <Judgement incident={incident} />}
        {incident.members.length > 0 && <p>{incident.members.map((member) => `${member.sensor_name ?? member.sensor_id}${member.room_name === null ? "" : ` (${member.room_name})`}`).join(", ")}</p>}
        {incident.members.length === 0 && incident.sensor_name !== null && <Link href={`/sensors/${encodeURIComponent(incident.sensor_id)}`}>Charts of {incident.sensor_name}</Link>}
      </div>
      <ol class="timeline" aria-label="What happened">
        {incident.timeline.map(({ at, event, actor, comment }, i) => (
          <li key={i}>
            <Timestamp at={at} />
            <span>{events[event] ?? event}{actor && <> by <strong>{actor}</strong></>}{comment && <Fragment>: {endings[comment] ?? comment}</Fragment>}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

/** The most incidents that the API acknowledges at once. */
const atOnce = 500;

function Acknowledge({ title, incidents, onClose }: Acknowledging & { onClose: () => void }) {
  const [comment, setComment] = useState("");
  const queries = useQueryClient();
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{incidents.length === 1 ? "It stays" : "They stay"} acknowledged while {incidents.length === 1 ? "it lasts" : "they last"}, however many readings follow.</p>
      <Form
        action="Acknowledge" onCancel={onClose}
        onSubmit={async () => {
          const ids = incidents.slice(0, atOnce).map(({ id }) => id);
          await unwrap(api.POST("/api/v1/incidents/acknowledge", { body: { ids, ...(comment.trim() && { comment: comment.trim() }) } }));
          await queries.invalidateQueries({ queryKey: keys.live });
          onClose();
        }}
      >
        <Field label="Comment" name="comment" value={comment} onInput={setComment} maxLength={500} required={false} hint="For whoever looks next. You may leave it empty." autoFocus />
      </Form>
    </Dialog>
  );
}
