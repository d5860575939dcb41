// Adds a gateway, and shows the command that enrols it until it is used: in the browser that made
// it, because the service keeps no code that it could show.
import { useState } from "preact/hooks";
import { api, unwrap, type Gateway } from "../api/client";
import { keys, refresh } from "../api/queries";
import { session } from "../api/session";
import { Stored } from "../api/storage";
import { serviceTime } from "../api/time";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";
import { Secret } from "./secret";
import { Timestamp } from "./timestamp";

const stored = new Stored("sessionStorage", "coldaisle.enrolment");
interface Code { code: string; until: string }
const codes = (): Record<string, Code> => {
  try {
    return JSON.parse(stored.get() ?? "{}") as Record<string, Code>;
  } catch {
    return {};
  }
};
session.subscribe(() => { if (session.get() === null) stored.set(null); });

const commandOf = (code: string) => `monitor-gateway enrol ${code} --api ${location.origin}`;

/** The command of a gateway whose code waits; of one that is over or made by another browser, what can be done. */
export function EnrolmentCommand({ gateway: { id, name } }: { gateway: Gateway }) {
  const made = codes()[id];
  const valid = made !== undefined && Date.parse(made.until) > serviceTime();
  return (
    <div class="card">
      {valid ? <>
        <p>Run this on the machine of {name}. Its code is valid once, until <Timestamp at={made.until} />.</p>
        <pre tabIndex={0}><code>{commandOf(made.code)}</code></pre>
      </> : (
        <p class="hint">
          {made?.until ? `The code of ${name} has expired. ` : `The code of ${name}, valid for 24 hours, was made in `
            + `another window, and only that one can show it. `}
          Revoke the gateway and add it again for a new one.
        </p>
      )}
    </div>
  );
}

export function AddGateway({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [code, setCode] = useState<string | null>(null);
  if (code !== null) {
    return (
      <Secret title={`Enrol ${name}`} text={commandOf(code)} onClose={onClose}>
        <p>Run this on the gateway's machine within 24 hours. It stays in Setup, in this window, until it is used.</p>
      </Secret>
    );
  }
  return (
    <Dialog title="Add gateway" onClose={onClose}>
      <Form
        action="Add gateway" onCancel={onClose}
        onSubmit={async () => {
          const created = await unwrap(api.POST("/api/v1/gateways", { body: { name } }));
          const { id, enrolment_code: made, expires_at: until } = created;
          stored.set(JSON.stringify({ ...codes(), [id]: { code: made, until } }));
          setCode(made);
          await refresh(keys.gateways);
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80}
          hint="Where it stands, for example “Basement”." autoFocus />
      </Form>
    </Dialog>
  );
}
