// Asks what an action on an incident needs: for how long, to whom, a comment.
import { useState } from "preact/hooks";
import { act, actions, type ActionName } from "../api/act";
import { keys, refresh, usePersons } from "../api/queries";
import { shownZone } from "../logic/format";
import { titleOf, type Incident } from "../logic/incidents";
import { clocksChange, inputInstant, inputValue } from "../logic/maintenance";
import { useNow } from "./clock";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

const hour = 3_600_000;

export default function Act({ incident, action, onClose }: {
  incident: Incident; action: ActionName; onClose: () => void;
}) {
  const now = useNow(60_000);
  const [comment, setComment] = useState("");
  const [to, setTo] = useState("");
  // On the clocks that everything else is shown by.
  const zone = shownZone();
  const [soon] = useState(now + hour);
  const [until, setUntil] = useState(() => inputValue(soon, zone));
  const { name, says } = actions[action];
  const persons = usePersons().data;
  const holder = persons?.find((person) => person.name === to.trim());
  const doubt = !persons || to.trim() === "" ? undefined
    : !holder ? "Nobody of this account has this name. Is it right?"
    : holder.role === "viewer" ? `${holder.name} is a viewer, who cannot act on it. Is it right?`
    : undefined;
  return (
    <Dialog title={`${name}: ${titleOf(incident)}`} onClose={onClose}>
      <p>{says}</p>
      <Form
        action={name} onCancel={onClose}
        onSubmit={async () => {
          const said = comment.trim();
          await act(incident, {
            action, ...(said && { comment: said }), ...(action === "hand_over" && { to: to.trim() }),
            ...(action === "snooze" && { until: inputInstant(until, zone, soon) }),
          });
          await refresh(keys.live);
          onClose();
        }}
      >
        {action === "hand_over" && <>
          <Field label="To" name="to" value={to} onInput={setTo} maxLength={120} autoFocus list="persons"
            hint={doubt} />
          <datalist id="persons">{persons?.map(({ id, name }) => <option key={id} value={name} />)}</datalist>
        </>}
        {action === "snooze" && (
          <Field
            label="Until" name="until" type="datetime-local" value={until} onInput={setUntil} autoFocus
            min={inputValue(soon - hour, zone)} max={inputValue(now + 7 * 24 * hour, zone)}
            hint={clocksChange(until, zone, soon)}
          />
        )}
        <Field
          label="Comment" name="comment" value={comment} onInput={setComment} maxLength={500}
          required={action === "comment"}
          hint={action === "comment" ? undefined : "For whoever looks next. You may leave it empty."}
          autoFocus={action === "comment" || action === "give_back"}
        />
      </Form>
    </Dialog>
  );
}
