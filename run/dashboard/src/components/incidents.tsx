// Incidents as a table, and what a person does with one. The keys work on the row that has
// the focus, and nowhere else.
import { useQueryClient } from "@tanstack/react-query";
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap } from "../api/client";
import { preferences } from "../api/preferences";
import { keys } from "../api/queries";
import { capital, shownZone, timeNear } from "../logic/format";
import { wrong } from "../logic/excursions";
import { lasting, nowOf, titleOf, type Incident, type Section } from "../logic/incidents";
import { inputTime, inputValue } from "../logic/maintenance";
import { useNow } from "./clock";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";
import { StatusMark } from "./states";
import { Timestamp } from "./timestamp";

/** Hundreds of rows are rendered anew for new incidents only. */
export const IncidentTable = memo(function IncidentTable({ sections }: { sections: readonly Section[] }) {
  const now = useNow(15_000);
  const [acting, setActing] = useState<Acting | null>(null);
  return (
    <>
      <table class="incidents" onKeyDown={moveAlong}>
        <thead>
          <tr><th scope="col">Incident</th><th scope="col">Now</th><th scope="col">Lasts</th><th scope="col">Who has it</th><th scope="col"><span class="unseen">Actions</span></th></tr>
        </thead>
        {sections.map(({ key, title, incidents }) => (
          <tbody key={key}>
            {title && <tr class="room-row"><th scope="rowgroup" colSpan={5}><h2>{title}</h2></th></tr>}
            {incidents.map((incident) => <Row key={incident.id} incident={incident} now={now} act={setActing} />)}
          </tbody>
        ))}
      </table>
      {acting && <Act {...acting} onClose={() => setActing(null)} />}
    </>
  );
});

/** Arrows move between rows, and "a" takes the one that has the focus. */
function moveAlong(event: KeyboardEvent) {
  const here = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
  if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(here);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to !== undefined) rows[to]?.focus();
  else if (event.key === "a" && preferences.get().singleKeys) here.closest("tr")?.querySelector<HTMLElement>("[data-take]")?.click();
  else return;
  event.preventDefault();
}

const marks = { too_hot: "up", too_humid: "up", too_cold: "down", too_dry: "down", silent: "offline", sensor: "alert", unusual: "alert" } as const;

/** Whether somebody must still look. */
const waits = ({ state, silenced, seen }: Incident) => !silenced && (state === "open" || (state === "over" && !seen));

function Row({ incident, now, act }: { incident: Incident; now: number; act: (acting: Acting) => void }) {
  return (
    <tr class={`${waits(incident) ? "waits" : "seen"} ${incident.severity} ${incident.state}`}>
      <td class="what">
        <Link href={`/incidents/${incident.id}`} data-row>
          <StatusMark kind={marks[incident.cause]} /> <span>{titleOf(incident)}</span>
          {incident.severity === "critical" && <span class="unseen">, critical</span>}
        </Link>
        <small>{wrong(incident.worst)}</small>
      </td>
      <td class="now"><span class="cell-name">Now </span>{incident.state === "over" ? "over" : capital(nowOf(incident).join(", "))}</td>
      <td><span class="cell-name">Lasts </span>{lasting(incident, now)}<small>{incident.state === "over" ? "from " : "since "}<Timestamp at={incident.start_time} /></small></td>
      <td><Holder incident={incident} now={now} /></td>
      <td>{incident.state !== "over" && <Actions incident={incident} act={act} short />}</td>
    </tr>
  );
}

/** Who has it, or had it, and what they said. */
export function Holder({ incident, now }: { incident: Incident; now: number }) {
  const { state, silenced, seen, late, taken_by: taken, taken_at: at, snoozed_until: until, comment } = incident;
  const said = comment !== null && ` · ${comment}`;
  if (silenced) return <span class="state">Silenced<small>in maintenance</small></span>;
  if (taken !== null) {
    return <span class="state"><StatusMark kind="ok" /> {taken}<small>{until !== null ? `calls again at ${timeNear(Date.parse(until), now)}` : at !== null && <Timestamp at={at} />}{said}</small></span>;
  }
  if (state === "over") return <span class="state">{seen ? "Seen" : "Over, not seen"}{(late || comment) && <small>{late && "reported late"}{said}</small>}</span>;
  return <span class="state open">{late ? "Reported late" : "Nobody has it"}{comment && <small>{comment}</small>}</span>;
}

type Action = "take" | "hand_over" | "snooze" | "give_back" | "comment";
export interface Acting { incident: Incident; action: Action }

const actions: Record<Action, { name: string; says: string }> = {
  take: { name: "Take", says: "You have it from now on, with what joins it. It calls again only when it gets worse." },
  snooze: { name: "Snooze", says: "You have it, and it calls again at this time unless it is over." },
  hand_over: { name: "Hand over", says: "Somebody else has it from now on." },
  give_back: { name: "Give back", says: "Nobody has it any more, and it calls again." },
  comment: { name: "Comment", says: "For whoever looks next." },
};

/** What can be done with an incident; of a row only what is done first. */
export function Actions({ incident, act, short = false }: { incident: Incident; act: (acting: Acting) => void; short?: boolean }) {
  const possible: Action[] = incident.state === "open" ? ["take", "snooze", "hand_over", "comment"] : incident.state === "taken" ? ["give_back", "snooze", "hand_over", "comment"] : ["comment"];
  return (
    <>
      {possible.slice(0, short ? 1 : undefined).map((action) => (
        <Button key={action} action={action} onClick={() => act({ incident, action })}>{actions[action].name}<span class="unseen"> {titleOf(incident)}</span></Button>
      ))}
    </>
  );
}

function Button({ action, onClick, children }: { action: Action; onClick: () => void; children: preact.ComponentChildren }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const element = button.current;
    // The dialog gives the focus back to it, and then it goes with what it did: its row has the focus.
    return () => { if (element && document.activeElement === element) element.closest("tr")?.querySelector<HTMLElement>("[data-row]")?.focus({ preventScroll: true }); };
  }, []);
  return <button ref={button} type="button" class={action === "take" ? undefined : "quiet"} data-take={action === "take" || undefined} onClick={onClick}>{children}</button>;
}

const hour = 3_600_000;

export function Act({ incident, action, onClose }: Acting & { onClose: () => void }) {
  const now = useNow(60_000);
  const [comment, setComment] = useState("");
  const [to, setTo] = useState("");
  // On the clocks that everything else is shown by.
  const zone = shownZone();
  const [until, setUntil] = useState(() => inputValue(now + hour, zone));
  const queries = useQueryClient();
  const { name, says } = actions[action];
  return (
    <Dialog title={`${name}: ${titleOf(incident)}`} onClose={onClose}>
      <p>{says}</p>
      <Form
        action={name} onCancel={onClose}
        onSubmit={async () => {
          const said = comment.trim();
          await unwrap(api.POST("/api/v1/incidents/{incident_id}/actions", {
            params: { path: { incident_id: incident.id } },
            body: { action, ...(said && { comment: said }), ...(action === "hand_over" && { to: to.trim() }), ...(action === "snooze" && { until: new Date(inputTime(until, zone)).toISOString() }) },
          }));
          await queries.invalidateQueries({ queryKey: keys.live });
          onClose();
        }}
      >
        {action === "hand_over" && <Field label="To" name="to" value={to} onInput={setTo} maxLength={120} autoFocus />}
        {action === "snooze" && <Field label="Until" name="until" type="datetime-local" value={until} min={inputValue(now, zone)} max={inputValue(now + 7 * 24 * hour, zone)} onInput={setUntil} autoFocus />}
        <Field label="Comment" name="comment" value={comment} onInput={setComment} maxLength={500} required={action === "comment"} hint={action === "comment" ? undefined : "For whoever looks next. You may leave it empty."} autoFocus={action !== "hand_over" && action !== "snooze"} />
      </Form>
    </Dialog>
  );
}
